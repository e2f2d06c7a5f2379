"""A replica against a private copy under stock SQLite: the same statements must show the same, one by one.

The generator is not clever; it is wide: data and schema changes, triggers, views, transactions and savepoints, TEMP
objects, constraints, full text, VACUUM, ALTER, and mistakes. Forms that a replica answers differently on purpose
(ignored PRAGMAs, ATTACH of files, the names of files) are left out: `test_policy` has them.
"""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bird_snapshots.limits import Limits
from bird_snapshots.store import Store
from bird_snapshots.template import Template
from bird_snapshots.testing import Reference, assert_same, assert_template_untouched

NUMBER = st.integers(-3, 120)
TABLE = st.sampled_from(["t", "t", "t", "parent", "child", "made", "scratch", "w", "big", "nowhere"])
VALUE = st.one_of(
    NUMBER.map(str),
    st.sampled_from(
        [
            "NULL",
            "'text'",
            "''",
            "x'00ff'",
            "1.5",
            "9e999",
            "9223372036854775807",
            "'é;--'",
            "CAST(x'ff41' AS TEXT)",
            "-0.0",
        ]
    ),
)
CONFLICT = st.sampled_from(["", "", "OR IGNORE ", "OR REPLACE ", "OR ABORT ", "OR FAIL ", "OR ROLLBACK "])
CONDITION = st.one_of(
    NUMBER.map("id = {}".format),
    NUMBER.map("id > {}".format),
    st.sampled_from(["1", "0", "a LIKE 'row 1%'", "a IS NULL", "b IN (SELECT b FROM t WHERE id < 9)", "nope = 1"]),
)


@st.composite
def _data(draw: st.DrawFn) -> str:
    table, value, other = draw(TABLE), draw(VALUE), draw(VALUE)
    condition, conflict = draw(CONDITION), draw(CONFLICT)
    return draw(
        st.sampled_from(
            [
                f"INSERT {conflict}INTO {table} VALUES ({draw(NUMBER)}, {value}, {other})",
                f"INSERT {conflict}INTO {table} VALUES ({value}, {other})",
                f"INSERT INTO t(a, b) VALUES ({value}, {other}), ({other}, {value}) RETURNING id, a",
                f"INSERT INTO t(id, a) VALUES ({draw(NUMBER)}, {value}) ON CONFLICT (id) DO UPDATE SET a = excluded.a",
                f"INSERT INTO t(a) SELECT a || {value} FROM t WHERE {condition} LIMIT 7",
                f"UPDATE {conflict}{table} SET id = id + 1 WHERE {condition}",
                f"UPDATE t SET a = {value} WHERE {condition} RETURNING *",
                f"UPDATE t SET b = (SELECT count(*) FROM {table}) WHERE {condition}",
                f"DELETE FROM {table} WHERE {condition}",
                f"DELETE FROM t WHERE {condition} RETURNING b",
                f"WITH x AS (SELECT 3 AS i) DELETE FROM {table} WHERE id IN (SELECT i FROM x)",
                f"REPLACE INTO t VALUES ({draw(NUMBER)}, {value}, {other})",
            ]
        )
    )


@st.composite
def _reading(draw: st.DrawFn) -> str:
    table, condition = draw(TABLE), draw(CONDITION)
    return draw(
        st.sampled_from(
            [
                f"SELECT * FROM {table}",
                f"SELECT *, rowid, typeof(a) FROM t WHERE {condition}",
                f"SELECT count(*), sum(b), min(a), max(id), group_concat(a) FROM t WHERE {condition}",
                f"SELECT a, row_number() OVER (ORDER BY b, id) FROM t WHERE {condition}",
                "SELECT name, sql FROM sqlite_schema ORDER BY rowid",
                "SELECT name FROM temp.sqlite_schema ORDER BY rowid",
                "SELECT changes(), total_changes(), last_insert_rowid()",
                f"SELECT t.id, {table}.id FROM t LEFT JOIN {table} ON t.b = {table}.id WHERE t.{condition}",
                "PRAGMA foreign_key_check",
                f"PRAGMA table_info({table})",
                f"EXPLAIN QUERY PLAN SELECT * FROM t WHERE {condition}",
                "PRAGMA foreign_keys",
                "PRAGMA integrity_check",
            ]
        )
    )


SCHEMA = st.sampled_from(
    [
        "CREATE TABLE made(id INTEGER PRIMARY KEY, a UNIQUE, b CHECK (b <> 7) DEFAULT 1)",
        "CREATE TABLE IF NOT EXISTS w(id TEXT, a, b, PRIMARY KEY (id, a)) WITHOUT ROWID",
        "CREATE TABLE made AS SELECT * FROM t WHERE id < 20",
        "CREATE TEMP TABLE scratch(id INTEGER PRIMARY KEY, a, b)",
        "CREATE TEMP TABLE t AS SELECT 1 AS id, 'shadow' AS a, 2 AS b",
        "CREATE TEMP VIEW big AS SELECT 'temp' AS id",
        "CREATE VIEW v AS SELECT id AS i, a FROM t",
        "CREATE INDEX made_a ON made(a)",
        "CREATE UNIQUE INDEX t_a ON t(a)",
        "CREATE TRIGGER tg AFTER UPDATE ON t WHEN new.b > 5 BEGIN INSERT INTO parent(name) VALUES (new.a); END",
        "CREATE TRIGGER io INSTEAD OF DELETE ON big BEGIN DELETE FROM t WHERE id = old.id; END",
        "CREATE TRIGGER no BEFORE DELETE ON parent BEGIN SELECT RAISE(FAIL, 'kept'); END",
        "CREATE VIRTUAL TABLE f USING fts5(body)",
        "INSERT INTO f SELECT a FROM t",
        "SELECT body FROM f WHERE f MATCH 'row' LIMIT 3",
        "DROP TABLE IF EXISTS made",
        "DROP TABLE t",
        "DROP VIEW big",
        "DROP INDEX t_b",
        "DROP TRIGGER tg",
        "ALTER TABLE t ADD COLUMN extra DEFAULT 'e'",
        "ALTER TABLE made RENAME TO w",
        "ALTER TABLE t RENAME COLUMN b TO bb",
        "ALTER TABLE t DROP COLUMN a",
        "ANALYZE",
        "REINDEX",
        "VACUUM",
    ]
)
CONTROL = st.sampled_from(
    [
        "BEGIN",
        "BEGIN IMMEDIATE",
        "BEGIN EXCLUSIVE",
        "COMMIT",
        "ROLLBACK",
        "SAVEPOINT s",
        "ROLLBACK TO s",
        "RELEASE s",
        "PRAGMA foreign_keys = ON",
        "PRAGMA foreign_keys = OFF",
        "PRAGMA defer_foreign_keys = ON",
        "PRAGMA recursive_triggers = ON",
        "PRAGMA case_sensitive_like = ON",
        "PRAGMA user_version = 5",
        "PRAGMA secure_delete = ON",
        "PRAGMA query_only = OFF",
        "ATTACH ':memory:' AS m",
        "CREATE TABLE m.t2 AS SELECT * FROM t",
        "DETACH m",
        "SELEC 1",
        "SELECT (",
        "",
        "-- nothing",
    ]
)
STATEMENT = st.one_of(_data(), _data(), _data(), _reading(), _reading(), SCHEMA, CONTROL)
EVERYTHING = Limits(rows=100_000, result_bytes=10**9)


@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(statements=st.lists(STATEMENT, min_size=5, max_size=40))
def test_a_replica_shows_what_stock_sqlite_shows(
    store: Store, template: Template, tmp_path: Path, statements: list[str]
) -> None:
    path = tmp_path / "reference.db"
    path.unlink(missing_ok=True)
    reference, replica = Reference(template.path, path), store.acquire(template.digest)
    try:
        with assert_template_untouched(store.templates, template.digest):
            assert_same(replica, reference, statements, EVERYTHING)
            ending = [] if replica.in_transaction else ["SELECT * FROM main.sqlite_schema", "PRAGMA integrity_check"]
            assert_same(replica, reference, ending, EVERYTHING)
    finally:
        replica.release()
        reference.close()


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(statements=st.lists(STATEMENT, min_size=2, max_size=12))
def test_one_text_is_its_statements_one_by_one(store: Store, template: Template, statements: list[str]) -> None:
    together, apart = store.acquire(template.digest), store.acquire(template.digest)
    text = together.execute(";\n".join(statements), EVERYTHING)
    single = []
    for statement in statements:
        single.append(apart.execute(statement, EVERYTHING))
        if single[-1].error:
            break
    outcomes = [(each.outcome, each.rows_seen, each.rowcount, each.columns) for each in text.statements]
    assert outcomes == [
        (one.outcome, one.rows_seen, one.rowcount, one.columns) for each in single for one in each.statements
    ]
    assert (text.in_transaction, text.pinned) == (single[-1].in_transaction, single[-1].pinned)
    ending = "SELECT * FROM main.sqlite_schema; SELECT total_changes()"
    assert together.execute(ending).digest == apart.execute(ending).digest
    together.release()
    apart.release()


def test_a_difference_is_found(store: Store, template: Template, tmp_path: Path) -> None:
    reference, replica = Reference(template.path, tmp_path / "reference.db"), store.acquire(template.digest)
    replica.execute("UPDATE t SET a = 'different' WHERE id = 100")
    try:
        assert_same(replica, reference, ["SELECT a FROM t WHERE id = 99"])
        try:
            assert_same(replica, reference, ["SELECT a FROM t WHERE id = 100"])
        except AssertionError as error:
            assert "different" in str(error)  # noqa: PT017
        else:
            raise AssertionError("the difference was not found")
    finally:
        reference.close()
