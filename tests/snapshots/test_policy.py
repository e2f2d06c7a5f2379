"""What a policy's SQL may not do, in every spelling, and what it still may."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from bird_snapshots.failures import Outcome
from bird_snapshots.policy import IGNORED, READABLE
from bird_snapshots.replica import Replica
from bird_snapshots.store import Store, engine_functions
from bird_snapshots.template import Template
from bird_snapshots.testing import assert_template_untouched


@pytest.fixture
def replica(store: Store, template: Template) -> Replica:
    return store.acquire(template.digest)


#: A value that would do harm, or that could be read back.
VALUES = {
    "wal_checkpoint": "TRUNCATE",
    "wal_autocheckpoint": "1",
    "locking_mode": "NORMAL",
    "journal_mode": "DELETE",
    "journal_size_limit": "0",
    "synchronous": "FULL",
    "mmap_size": "0",
    "temp_store": "MEMORY",
    "hard_heap_limit": "200000",
    "soft_heap_limit": "200000",
    "temp_store_directory": "'/'",
    "data_store_directory": "'/'",
    "lock_proxy_file": "'x'",
    "threads": "4",
    "cache_size": "-4000000",
    "default_cache_size": "4000000",
    "cache_spill": "0",
    "max_page_count": "10",
}

FORMS = (
    "PRAGMA {name}={value}",
    "PRAGMA {name}({value})",
    'PRAGMA main."{name}"={value}',
    "PRAGMA [{name}] = {value}",
    "/* x */PRAGMA/**/{upper}/**/=/**/{value} -- y",
    "PRAGMA temp.{name}={value}",
    "EXPLAIN PRAGMA {name}={value}",
    "SELECT * FROM pragma_{name}({value})",
    "CREATE TEMP VIEW v AS SELECT * FROM pragma_{name}({value}); SELECT * FROM v",
    "CREATE TRIGGER g AFTER INSERT ON t BEGIN SELECT * FROM pragma_{name}({value}); END; INSERT INTO t DEFAULT VALUES",
)


def test_every_ignored_pragma_is_tried() -> None:
    assert set(VALUES) == IGNORED
    assert READABLE < IGNORED


def settings(replica: Replica) -> list[object]:
    return [replica.execute(f"PRAGMA {name}").rows for name in sorted(READABLE)]


@pytest.mark.parametrize("name", sorted(IGNORED))
def test_ignored_pragmas_do_nothing_in_any_form(store: Store, replica: Replica, template: Template, name: str) -> None:
    replica.execute("UPDATE t SET a = 'changed'")
    before, hard, soft = settings(replica), apsw.hard_heap_limit(-1), apsw.soft_heap_limit(-1)
    with assert_template_untouched(store.templates, template.digest):
        for form in FORMS:
            text = form.format(name=name, upper=name.upper(), value=VALUES[name])
            result = replica.execute(text)
            assert result.outcome in (Outcome.OK, Outcome.SQL_ERROR), text
            if result.outcome is Outcome.SQL_ERROR:  # no such table-valued function, or not in a trigger
                assert "pragma_" in text, (text, result.error)
            elif not text.startswith("EXPLAIN"):
                assert result.rows == [], text
    assert settings(replica) == before
    assert apsw.hard_heap_limit(-1) == hard > 0
    assert apsw.soft_heap_limit(-1) == soft
    assert replica.execute("SELECT sum(a = 'changed') FROM t").rows == [(100,)]


def test_reading_forms_answer(replica: Replica) -> None:
    assert replica.execute("PRAGMA journal_mode").rows == [("wal",)]
    assert replica.execute("PRAGMA cache_size").rows == [(-256,)]
    assert replica.execute("SELECT * FROM pragma_locking_mode").rows == [("exclusive",)]


@pytest.mark.parametrize(
    "text",
    [
        "PRAGMA foreign_keys = ON; PRAGMA foreign_keys",
        "PRAGMA user_version = 1; PRAGMA user_version",
        "PRAGMA recursive_triggers = 1; PRAGMA recursive_triggers",
        "PRAGMA query_only = 1; PRAGMA query_only",
        "PRAGMA busy_timeout = 1; PRAGMA busy_timeout",
        "PRAGMA application_id = 1; PRAGMA application_id",
        "PRAGMA reverse_unordered_selects = 1; PRAGMA reverse_unordered_selects",
    ],
)
def test_other_pragmas_work(replica: Replica, text: str) -> None:
    assert replica.execute(text).rows == [(1,)]


class TestFiles:
    @pytest.mark.parametrize(
        "text",
        [
            "ATTACH '{path}' AS z",
            "ATTACH 'file:{path}?mode=rwc' AS z",
            "ATTACH 'file::memory:?cache=shared' AS z",
            "ATTACH 'file:{path}?vfs=unix' AS z",
            "ATTACH '{template}' AS z",
            "ATTACH (SELECT '{path}') AS z",
            "ATTACH '{path}' || '' AS z",
            "ATTACH NULL AS z",
            "EXPLAIN ATTACH '{path}' AS z",
            "VACUUM INTO '{path}'",
            "VACUUM main INTO '{path}'",
            "VACUUM INTO (SELECT '{path}')",
            "SELECT load_extension('{path}')",
            "SELECT load_extension('{path}', 'x')",
            "CREATE TRIGGER g AFTER INSERT ON t BEGIN SELECT load_extension('x'); END; INSERT INTO t(a) VALUES(1)",
            "SELECT hex(fts3_tokenizer('simple'))",
            "SELECT fts3_tokenizer('x', x'4141414141414141')",
            "SELECT FTS3_Tokenizer('simple')",
        ],
    )
    def test_refused(self, store: Store, replica: Replica, template: Template, tmp_path: Path, text: str) -> None:
        target = tmp_path / "out" / "made.db"
        target.parent.mkdir()
        with assert_template_untouched(store.templates, template.digest):
            result = replica.execute(text.format(path=target, template=template.path))
        assert result.outcome is Outcome.SQL_ERROR
        assert result.error is not None
        assert "not authorized" in result.error.message
        assert result.error.hint
        assert "out of reach" in result.error.hint
        assert list(target.parent.iterdir()) == []

    @pytest.mark.parametrize("name", ["':memory:'", "''"])
    def test_private_databases_attach(self, replica: Replica, name: str) -> None:
        result = replica.execute(f"ATTACH {name} AS m; CREATE TABLE m.x AS SELECT a FROM t; SELECT count(*) FROM m.x")
        assert result.rows == [(100,)]
        assert result.pinned
        assert replica.execute("ATTACH ':memory:' AS n").outcome is Outcome.SQL_ERROR, "only one"
        assert not replica.execute("DETACH m").pinned

    def test_vacuum_works_and_makes_no_file(self, store: Store, replica: Replica, template: Template) -> None:
        with assert_template_untouched(store.templates, template.digest):
            result = replica.execute(
                "DELETE FROM t WHERE id > 50; VACUUM; PRAGMA integrity_check; SELECT count(*) FROM t"
            )
        assert [each.outcome for each in result.statements] == [Outcome.OK] * 4
        assert result.rows == [(50,)]

    def test_only_names_lead_to_files(self, store: Store, replica: Replica) -> None:
        replica.execute(
            "CREATE TEMP TABLE x AS SELECT zeroblob(40000) FROM t; ATTACH '' AS m; CREATE TABLE m.y AS SELECT * FROM x"
        )
        replica.execute("SELECT count(*) FROM (SELECT a, randomblob(20000) r FROM t ORDER BY r)")
        assert sorted(path.name.split(".")[-1] for path in (store.root / "replicas").iterdir()) == ["db", "db-wal"]
        assert list((store.root / "tmp").iterdir()) == []


class TestSchema:
    @pytest.mark.parametrize(
        "text",
        [
            "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = 'CREATE TABLE t(' WHERE name = 't'",
            "PRAGMA writable_schema = ON; DELETE FROM sqlite_schema",
            "INSERT INTO sqlite_master VALUES ('table', 'x', 'x', 0, 'CREATE TABLE x(y)')",
            "CREATE VIRTUAL TABLE f USING fts5(a); DELETE FROM f_data",
        ],
    )
    def test_it_cannot_be_edited(self, replica: Replica, text: str) -> None:
        assert replica.execute(text).outcome is Outcome.SQL_ERROR
        assert replica.execute("PRAGMA schema_version = 77; PRAGMA quick_check").rows == [("ok",)]

    def test_full_text_and_altering_work(self, replica: Replica) -> None:
        texts = (
            "CREATE VIRTUAL TABLE f USING fts5(a); INSERT INTO f SELECT a FROM t; SELECT count(*) FROM f('row')",
            "ALTER TABLE t RENAME TO u; SELECT count(*) FROM u",
            "ALTER TABLE u RENAME COLUMN a TO z; SELECT count(z) FROM u",
            "ALTER TABLE u DROP COLUMN z; SELECT count(*) FROM u",
            "CREATE VIRTUAL TABLE r USING rtree(i, x, y); INSERT INTO r SELECT id, b, b FROM u; SELECT count(*) FROM r",
        )
        for text in texts:
            assert replica.execute(text).rows == [(100,)], text


class TestFunctions:
    SCORER = engine_functions() - {"concat", "string_agg", "median"}

    @pytest.fixture
    def limited(self, template: Template, store: Store) -> Iterator[Replica]:
        store.close()
        with Store(store.root, engine_functions=self.SCORER) as again:
            yield again.acquire(template.digest)

    @pytest.mark.parametrize("name", ["concat", "CONCAT", '"concat"', "string_agg"])
    def test_what_the_scorer_lacks_is_refused(self, limited: Replica, name: str) -> None:
        result = limited.execute(f"SELECT {name}('a', 'b')")
        assert result.outcome is Outcome.SQL_ERROR
        assert result.error is not None
        assert "not authorized to use function" in result.error.message
        assert result.error.hint
        assert "scores" in result.error.hint

    def test_the_rest_and_what_sqlite_uses_itself_work(self, limited: Replica) -> None:
        texts = (
            "SELECT printf('%d', 1), group_concat(a), json_extract('{}', '$'), count(*) OVER (), a LIKE 'r%' FROM t",
            "SELECT '{}' ->> '$', '[1]' -> 0, 'a' GLOB '*', 'a' || 'b', CAST('1' AS REAL)",
            "ALTER TABLE t RENAME COLUMN a TO z",
            "ALTER TABLE t RENAME TO u",
            "ALTER TABLE u ADD COLUMN extra DEFAULT 3",
            "ALTER TABLE u DROP COLUMN extra",
            "ANALYZE",
            "REINDEX",
            "VACUUM",
            "CREATE VIRTUAL TABLE f USING fts5(a); INSERT INTO f VALUES ('x'); SELECT bm25(f) FROM f('x')",
        )
        for text in texts:
            result = limited.execute(text)
            assert result.outcome is Outcome.OK, (text, result.error)

    def test_unknown_functions_keep_sqlites_message(self, limited: Replica) -> None:
        result = limited.execute("SELECT nope(1)")
        assert result.error is not None
        assert result.error.message == "no such function: nope"


def test_names_that_are_no_utf8_can_be_used(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "latin.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE t(cafXX INT, y); CREATE VIEW v AS SELECT * FROM t; INSERT INTO t VALUES (1, 2)")
    connection.close()
    path.write_bytes(path.read_bytes().replace(b"cafXX", b"caf\xe9\xe9"))
    replica = store.acquire(store.templates.publish(path).digest)
    for text in ("SELECT * FROM t", "SELECT * FROM v", "UPDATE t SET y = 3 RETURNING *"):
        result = replica.execute(text)
        assert result.outcome is Outcome.OK, result.error
        assert result.columns == ("caf\udce9\udce9", "y")


def test_an_authorizer_that_fails_denies(store: Store, template: Template, monkeypatch: pytest.MonkeyPatch) -> None:
    replica = store.acquire(template.digest)

    def broken(*_names: object) -> int:
        raise RuntimeError("broken")

    monkeypatch.setattr("bird_snapshots.policy.Policy._note_write", broken)
    result = replica.execute("DELETE FROM t")
    assert result.error is not None
    assert result.error.message == "not authorized"
