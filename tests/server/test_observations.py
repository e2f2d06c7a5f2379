"""What a policy reads, letter by letter, of what SQLite really did."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bird_env import values
from bird_env.models import Observation, ObservationFormat, Outcome
from bird_server import observations
from bird_server.observations import OUTCOMES, observe
from bird_snapshots.execution import Execution
from bird_snapshots.failures import Outcome as EngineOutcome
from bird_snapshots.limits import DEFAULT_LIMITS, Limits
from bird_snapshots.position import Position
from bird_snapshots.replica import Replica
from bird_snapshots.store import Store
from bird_snapshots.testing import SteppedClock

SCRIPT = """
CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, score REAL);
INSERT INTO t VALUES (1, 'ann', 1.5), (2, NULL, 20.0), (3, '', NULL);
"""
ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r"


@pytest.fixture(scope="module")
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, clock: SteppedClock) -> Iterator[tuple[Store, str]]:
    folder = tmp_path_factory.mktemp("observations")
    with closing(sqlite3.connect(folder / "source.sqlite")) as connection:
        connection.executescript(SCRIPT)
    with Store(folder / "store", clock=clock.clock) as opened:
        yield opened, opened.templates.publish(folder / "source.sqlite").digest


@pytest.fixture
def replica(store: tuple[Store, str]) -> Iterator[Replica]:
    opened, digest = store
    replica = opened.acquire(digest)
    yield replica
    replica.release()


def seen(execution: Execution, format: str = "table", *, text_chars: int = 8_000) -> Observation:
    return observe(execution, ObservationFormat(format), text_chars=text_chars, cpu_s=30.0)


def text(replica: Replica, sql: str, format: str, limits: Limits = DEFAULT_LIMITS) -> str:
    return seen(replica.execute(sql, limits), format).text


# ---- golden texts ----

GOLDEN: list[tuple[str, str, str]] = [
    # a result
    (
        "SELECT * FROM t",
        "table",
        "id | name | score\n---+------+------\n1  | ann  | 1.5\n2  | NULL | 20.0\n3  |      | NULL\n(3 rows)",
    ),
    (
        "SELECT * FROM t",
        "json",
        '{"outcome": "ok", "columns": ["id", "name", "score"], "rows": [[1, "ann", 1.5], [2, null, 20.0], '
        '[3, "", null]], "rows_seen": 3}',
    ),
    ("SELECT * FROM t", "csv", 'id,name,score\n1,ann,1.5\n2,,20.0\n3,"",\n'),
    (
        "SELECT * FROM t",
        "repr",
        "SQL executed successfully.\n\nResults: [(1, 'ann', 1.5), (2, None, 20.0), (3, '', None)]",
    ),
    # a result without rows
    ("SELECT id FROM t WHERE 0", "table", "id\n--\n(0 rows)"),
    ("SELECT id FROM t WHERE 0", "json", '{"outcome": "ok", "columns": ["id"], "rows": [], "rows_seen": 0}'),
    ("SELECT id FROM t WHERE 0", "csv", "id\n"),
    ("SELECT id FROM t WHERE 0", "repr", "SQL executed successfully.\n\nResults: []"),
    # changes
    ("UPDATE t SET score = 0 WHERE id < 3", "table", "OK, 2 rows changed."),
    ("UPDATE t SET score = 0 WHERE id < 3", "json", '{"outcome": "ok", "rows_changed": 2}'),
    ("UPDATE t SET score = 0 WHERE id < 3", "csv", "OK, 2 rows changed."),
    ("UPDATE t SET score = 0 WHERE id < 3", "repr", "SQL executed successfully."),
    ("DELETE FROM t WHERE id = 1", "table", "OK, 1 row changed."),
    ("DELETE FROM t WHERE 0", "table", "OK, 0 rows changed."),
    ("CREATE TABLE u(x)", "table", "OK."),
    ("CREATE TABLE u(x)", "json", '{"outcome": "ok", "rows_changed": 0}'),
    ("INSERT INTO t(id) VALUES (4); DELETE FROM t", "table", "OK, 5 rows changed."),
    ("DELETE FROM t RETURNING id", "table", "id\n--\n1\n2\n3\n(3 rows)"),
    # nothing
    ("", "table", "Nothing to execute."),
    ("-- only a comment", "json", '{"outcome": "ok", "rows_changed": 0}'),
    (" ; ", "csv", "Nothing to execute."),
    ("", "repr", "SQL executed successfully."),
    # errors
    ("SELECT nope FROM t", "table", "Error: no such column: nope"),
    ("SELECT nope FROM t", "json", '{"outcome": "sql_error", "error": "no such column: nope"}'),
    ("SELECT nope FROM t", "csv", "Error: no such column: nope"),
    ("SELECT nope FROM t", "repr", "Execution failed: no such column: nope"),
    (
        "DELETE FROM t WHERE id = 1; SELECT 1; INSERT INTO t(id) VALUES (2)",
        "table",
        "Error: UNIQUE constraint failed: t.id\n2 earlier statement(s) of this text had run.",
    ),
    (
        "DELETE FROM t WHERE id = 1; INSERT INTO t(id) VALUES (2)",
        "json",
        '{"outcome": "sql_error", "error": "UNIQUE constraint failed: t.id", '
        '"notes": ["1 earlier statement(s) of this text had run."]}',
    ),
    (
        "DELETE FROM t WHERE id = 1; INSERT INTO t(id) VALUES (2)",
        "repr",
        "Execution failed: UNIQUE constraint failed: t.id",
    ),
    (
        "```sql\nSELECT 1\n```",
        "table",
        'Error: near "```sql\nSELECT 1\n```": syntax error\n'
        "The text begins with a Markdown code fence (```): send the SQL without it.",
    ),
    # transactions
    ("BEGIN", "table", "OK.\nA transaction is open."),
    ("BEGIN; SELECT 1 AS one", "json", '{"outcome": "ok", "columns": ["one"], "rows": [[1]], "rows_seen": 1, '
     '"notes": ["A transaction is open."]}'),
    ("BEGIN; SELECT 1 AS one", "csv", "one\n1\n# A transaction is open.\n"),
    ("BEGIN; SELECT 1 AS one", "repr", "SQL executed successfully.\n\nResults: [(1,)]"),
    ("BEGIN; COMMIT", "table", "OK."),
    (
        "BEGIN; INSERT OR ROLLBACK INTO t(id) VALUES (1)",
        "table",
        "Error: UNIQUE constraint failed: t.id\n1 earlier statement(s) of this text had run.\n"
        "The open transaction was rolled back.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "format", "expected"), GOLDEN)
def test_texts_are_these(replica: Replica, sql: str, format: str, expected: str) -> None:
    assert text(replica, sql, format) == expected


# ---- repr: what policies trained with BIRD-RL's tools know ----


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select 1", "\n\nResults: [(1,)]"),
        ("  \n-- why\n/* and */ SELECT 1", "\n\nResults: [(1,)]"),
        ("; \ufeffSELECT 1", "\n\nResults: [(1,)]"),
        ("WITH x AS (SELECT 2 AS a) SELECT a FROM x", "\n\nResults: [(2,)]"),
        ("WITH x AS (SELECT 7 AS a) INSERT INTO t(id) SELECT a FROM x", "\n\nResults: []"),
        ("PRAGMA user_version", "\n\nResults: [(0,)]"),
        ("PRAGMA foreign_keys = ON", "\n\nResults: []"),
        ("EXPLAIN SELECT 1", ""),
        ("VALUES (1)", ""),
        ("DELETE FROM t RETURNING id", ""),
        ("CREATE TABLE u AS SELECT 1", ""),
        ("SELECT 1; DELETE FROM t", ""),
        ("DELETE FROM t; SELECT count(*) FROM t", "\n\nResults: [(0,)]"),
        ("SELECT 1; PRAGMA foreign_keys = ON", "\n\nResults: []"),
        ("SELECT 1; WITH x AS (SELECT 7 AS a) INSERT INTO t(id) SELECT a FROM x", "\n\nResults: []"),
        ("SELECT 9e999, x'00ff', 'it''s', 'é', 1e300", "\n\nResults: [(inf, b'\\x00\\xff', \"it's\", 'é', 1e+300)]"),
    ],
)  # fmt: skip
def test_results_are_shown_for_select_with_and_pragma_only(replica: Replica, sql: str, expected: str) -> None:
    assert text(replica, sql, "repr") == "SQL executed successfully." + expected


def test_every_limit_is_said_as_in_every_format(replica: Replica, clock: SteppedClock) -> None:
    clock.cpu_step_s = 1.0
    execution = replica.execute(f"SELECT 1; {ENDLESS}", Limits(cpu_s=20))
    clock.cpu_step_s = 0.0
    assert seen(execution, "repr").text == "Execution failed: Timeout after 30s"
    assert seen(execution, "table").text.splitlines()[:2] == [
        "Error: Timeout after 30s",
        "1 earlier statement(s) of this text had run.",
    ]
    assert json.loads(seen(execution, "json").text)["error"] == "Timeout after 30s"
    assert seen(execution).error is not None
    half = observe(execution, ObservationFormat.REPR, text_chars=1_000, cpu_s=0.5)
    assert half.text == "Execution failed: Timeout after 0.5s"
    long = replica.execute("SELECT zeroblob(2000)", Limits(value_bytes=1_000))
    assert seen(long, "repr").text == "Execution failed: string or blob too big"
    replica.execute("INSERT INTO t(name) SELECT zeroblob(5000) FROM t")
    quota = replica.execute("INSERT INTO t(name) VALUES (1)", Limits(wal_bytes=5_000))
    assert seen(quota, "repr").text == "Execution failed: over quota: this database may write 5000 bytes in its life"
    assert [seen(each).statements[-1].outcome for each in (execution, long, quota)] == ["timeout", "limit", "quota"]


# ---- what is cut is said ----


@pytest.mark.parametrize(
    ("format", "expected"),
    [
        ("table", "id\n--\n1\n2\n(3 rows, the first 2 shown)"),
        (
            "json",
            '{"outcome": "ok", "columns": ["id"], "rows": [[1], [2]], "rows_seen": 3, '
            '"notes": ["(3 rows, the first 2 shown)"]}',
        ),
        ("csv", "id\n1\n2\n# (3 rows, the first 2 shown)\n"),
        ("repr", "SQL executed successfully.\n\nResults: [(1,), (2,)]\n(3 rows, the first 2 shown)"),
    ],
)
def test_rows_that_are_not_returned_are_counted(replica: Replica, format: str, expected: str) -> None:
    execution = replica.execute("SELECT id FROM t", Limits(rows=2))
    observation = seen(execution, format)
    assert observation.text == expected
    assert (observation.rows, observation.rows_seen, observation.truncated) == ([[1], [2]], 3, True)


@pytest.mark.parametrize("format", list(ObservationFormat))
def test_rows_that_only_the_text_leaves_out_are_counted_too(
    replica: Replica, format: ObservationFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observations, "MAX_TEXT_ROWS", 2)
    observation = seen(replica.execute("SELECT id FROM t"), format)
    assert "(3 rows, the first 2 shown)" in observation.text
    assert (len(observation.rows), observation.truncated) == (3, False)


@pytest.mark.parametrize("format", list(ObservationFormat))
@pytest.mark.parametrize("text_chars", [100, 101, 500, 999])
def test_a_text_is_cut_to_its_limit_and_says_by_how_much(
    replica: Replica, format: ObservationFormat, text_chars: int
) -> None:
    execution = replica.execute("SELECT id, hex(zeroblob(400)) AS zeros FROM t")
    whole = seen(execution, format, text_chars=100_000)
    cut = seen(execution, format, text_chars=text_chars)
    assert whole.text_truncated_chars == 0
    assert len(cut.text) <= text_chars
    kept, _, note = cut.text.rpartition("\n")
    assert note == f"[{cut.text_truncated_chars} more characters not shown]"
    assert whole.text == kept + whole.text[-cut.text_truncated_chars :]
    assert cut.rows == whole.rows


@settings(max_examples=100, deadline=None)
@given(length=st.integers(0, 1_200), text_chars=st.integers(100, 1_100))
def test_kept_and_cut_add_up_at_every_length(length: int, text_chars: int) -> None:
    long = execution(("c",), [("x" * length,)])
    whole = seen(long, "csv", text_chars=10**6).text
    cut = seen(long, "csv", text_chars=text_chars)
    assert len(cut.text) <= text_chars
    if cut.text_truncated_chars:
        note = f"\n[{cut.text_truncated_chars} more characters not shown]"
        assert cut.text == whole[: len(whole) - cut.text_truncated_chars] + note
    else:
        assert cut.text == whole


def test_one_long_value_does_not_widen_a_thousand_short_ones() -> None:
    rows: list[tuple[values.Value, ...]] = [("w" * 100_000, 1), *(("s", number) for number in range(999))]
    observation = seen(execution(("long", "n"), rows), "table", text_chars=10**9)
    assert len(observation.text) < 300_000
    lines = observation.text.splitlines()
    assert lines[0] == "long".ljust(80) + " | n"
    assert lines[2] == "w" * 100_000 + " | 1"
    assert lines[3] == "s".ljust(80) + " | 0"


# ---- odd values ----


def test_cells_of_a_table_keep_to_their_line(replica: Replica) -> None:
    sql = (
        "SELECT 'a' || char(10) || 'b' AS \"two\nlines\", 'a' || char(0) || 'b' AS nul, char(9) AS tab,"
        " CAST(x'54e9' AS TEXT) AS latin, 'näive 東京' AS wide, x'00ff' AS blob, x'' AS empty,"
        " char(27) || '[31m' AS esc"
    )
    header, line, cells, count = text(replica, sql, "table").splitlines()
    names = [name.strip() for name in header.split(" | ")]
    assert names == ["two\\nlines", "nul", "tab", "latin", "wide", "blob", "empty", "esc"]
    assert [cell.strip() for cell in cells.split(" | ")] == [
        "a\\nb",
        "a\\x00b",
        "\\t",
        "T\\udce9",
        "näive 東京",
        "X'00FF'",
        "X''",
        "\\x1b[31m",
    ]
    assert set(line) == {"-", "+"}
    assert count == "(1 row)"


@pytest.mark.parametrize("format", list(ObservationFormat))
def test_every_text_is_utf_8(replica: Replica, format: ObservationFormat) -> None:
    for sql in (
        "SELECT CAST(x'ff' AS TEXT) AS bad, 'x' || char(0)",
        'SELECT 1 AS "\udce9"',
        "INSERT INTO t(id, name) VALUES (1, '\ud83d')",
        'SELECT "no\nsuch"',
    ):
        observation = seen(replica.execute(sql), format)
        observation.text.encode("utf-8")
        if observation.error is not None:
            observation.error.message.encode("utf-8")


def test_values_are_exact_beside_the_text(replica: Replica) -> None:
    sql = "SELECT NULL, 9007199254740993, 9e999, CAST(x'ff' AS TEXT), 'a' || char(0), x'00', 0.1 + 0.2"
    observation = seen(replica.execute(sql))
    assert observation.values() == [(None, 9007199254740993, float("inf"), "\udcff", "a\0", b"\0", 0.1 + 0.2)]
    assert observation.columns[1] == "9007199254740993"


# ---- what programs read back ----

VALUES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.sampled_from(["\udcff", "a\0b", "#", "# x", '"', 'a"b', ",", "\r\n", "\n", " ", ""]),
    st.binary(max_size=6),
)


def execution(columns: tuple[str, ...], rows: list[tuple[values.Value, ...]]) -> Execution:
    """What the engine gives for a result."""
    return Execution(
        statements=[],
        outcome=EngineOutcome.OK,
        error=None,
        columns=columns,
        rows=rows,
        rows_seen=len(rows),
        truncated=False,
        rowcount=None,
        in_transaction=False,
        pinned=False,
        transaction_rolled_back=False,
        position=Position("0" * 32, 0),
        elapsed_ms=0.0,
        cpu_ms=0.0,
        digest="0" * 64,
    )


TABLES = st.integers(1, 4).flatmap(lambda width: st.lists(st.tuples(*[VALUES] * width), min_size=1, max_size=5))


@settings(max_examples=150, deadline=None)
@given(TABLES)
def test_json_is_json_and_reads_back_exactly(rows: list[tuple[values.Value, ...]]) -> None:
    columns = tuple(f"c{number}" for number in range(len(rows[0])))
    body = json.loads(seen(execution(columns, rows), "json", text_chars=10**6).text)
    assert body["columns"] == list(columns)
    assert [list(map(repr, row)) for row in values.decode_rows(body["rows"])] == [list(map(repr, row)) for row in rows]


@settings(max_examples=150, deadline=None)
@given(TABLES)
def test_csv_is_csv(rows: list[tuple[values.Value, ...]]) -> None:
    columns = tuple(f"c{number}" for number in range(len(rows[0])))
    written = seen(execution(columns, rows), "csv", text_chars=10**6).text
    # Python's reader takes an empty line for no row; in this format it is a row of one NULL
    expected = [[shown(value) for value in row] if row != (None,) else [] for row in rows]
    assert list(csv.reader(io.StringIO(written, newline=""))) == [list(columns), *expected]


@settings(max_examples=100, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=4))
def test_a_null_and_an_empty_text_and_a_note_are_told_apart_in_csv(row: list[values.Value]) -> None:
    columns = tuple(f"c{number}" for number in range(len(row)))
    noted = execution(columns, [tuple(row)])
    noted.in_transaction = True
    written = seen(noted, "csv", text_chars=10**6).text
    assert written.endswith("\n# A transaction is open.\n")
    body = written.removesuffix("# A transaction is open.\n").split("\n", 1)[1]
    assert not body.startswith("#")
    if len(row) == 1:
        assert (body == "\n") == (row[0] is None)
        assert (body == '""\n') == (row[0] == "")


def shown(value: values.Value) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    return str(value).encode("utf-8", "backslashreplace").decode()


# ---- the rest of an observation ----


def test_every_outcome_but_our_own_fault_is_one_of_the_wire() -> None:
    assert set(OUTCOMES) == set(EngineOutcome) - {EngineOutcome.STARVED}
    assert set(OUTCOMES.values()) == set(Outcome) - {Outcome.SUBMITTED}


def test_statements_are_told_one_by_one(replica: Replica) -> None:
    observation = seen(replica.execute("INSERT INTO t(id) VALUES (9); SELECT id FROM t; SELECT nope"))
    assert [
        (each.sql, each.outcome, each.readonly, each.rowcount, each.rows_seen) for each in observation.statements
    ] == [
        ("INSERT INTO t(id) VALUES (9);", "ok", False, 1, 0),
        ("SELECT id FROM t;", "ok", True, None, 4),
        ("SELECT nope", "sql_error", None, None, 0),
    ]
    assert observation.error == observation.statements[2].error
    assert observation.error is not None
    assert (observation.error.statement_index, observation.error.offset) == (2, 55)


def test_equal_results_have_equal_hashes_and_others_have_not(replica: Replica) -> None:
    def hash_of(sql: str, **limits: int) -> str:
        return seen(replica.execute(sql, Limits(**limits))).result_hash

    assert hash_of("SELECT id FROM t") == hash_of("SELECT id FROM t -- again")
    assert hash_of("SELECT id FROM t") == hash_of("SELECT id FROM t", rows=1)
    others = [
        "SELECT id FROM t",
        "SELECT id AS b FROM t",
        "SELECT id FROM t ORDER BY id DESC",
        "SELECT id FROM t LIMIT 2",
        "SELECT CAST(id AS REAL) AS id FROM t",
        "SELECT nope",
        "SELECT nope2",
        "UPDATE t SET score = 1",
        "UPDATE t SET score = 1 WHERE id = 1",
        "CREATE TABLE u(x)",
        "",
    ]
    hashes = [hash_of(sql) for sql in others]
    assert len(set(hashes)) == len(others)


def test_a_value_that_sqlite_does_not_have_is_a_defect() -> None:
    with pytest.raises(TypeError, match="complex"):
        seen(execution(("c",), [(1j,)]))  # type: ignore[list-item]
