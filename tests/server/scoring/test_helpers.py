"""The functions that run SQL for a test, on a connection at hand."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from pathlib import Path

import pytest

from bird_server.scoring import helpers


@pytest.fixture
def connection(database: Path) -> Generator[sqlite3.Connection]:
    opened = helpers.get_connection(str(database))
    yield opened
    opened.close()


def test_a_connection_is_as_the_evaluator_opens_it(connection: sqlite3.Connection, tmp_path: Path) -> None:
    assert not connection.isolation_level  # an empty text: the module begins transactions by itself
    assert connection.isolation_level is not None
    assert connection.execute("PRAGMA busy_timeout").fetchone() == (30_000,)
    with pytest.raises(sqlite3.OperationalError):
        helpers.get_connection(str(tmp_path / "nothing.sqlite"))


def test_rows_beyond_the_cap_are_dropped_but_stepped_through(connection: sqlite3.Connection) -> None:
    counted = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c WHERE n<{}) SELECT {} FROM c"
    rows, _ = helpers.perform_query_on_sqlite_databases(counted.format(10_002, "n"), "", connection)
    assert len(rows) == helpers.ROW_CAP
    assert rows[-1] == (helpers.ROW_CAP,)
    failing = counted.format(10_002, "CASE n WHEN 10002 THEN json('{') ELSE n END")
    with pytest.raises(sqlite3.OperationalError, match="malformed JSON"):
        helpers.perform_query_on_sqlite_databases(failing, "", connection)


def test_an_error_undoes_its_own_statement_only(connection: sqlite3.Connection) -> None:
    statements = ["CREATE TABLE u(a UNIQUE)", "INSERT INTO u VALUES (1)", "INSERT INTO u VALUES (2), (1)"]
    result, execution, timeout, message = helpers.execute_queries(statements, "", connection, return_error=True)
    assert (result, execution, timeout, message) == ([], True, False, "UNIQUE constraint failed: u.a")
    assert connection.execute("SELECT a FROM u").fetchall() == [(1,)]


def test_an_open_transaction_is_left_as_it_is(connection: sqlite3.Connection) -> None:
    helpers.execute_queries("SELECT 1", "", connection)
    connection.execute("INSERT INTO t VALUES (9)")
    assert helpers.execute_queries("SELECT 1", "", connection) == (None, True, False)
    assert connection.in_transaction
    connection.rollback()


@pytest.mark.parametrize(
    ("error", "flags"),
    [
        (None, (False, False)),
        (sqlite3.OperationalError("Database Is Locked"), (False, True)),
        (sqlite3.OperationalError("no such column: TIMEOUT_s"), (False, True)),
        (sqlite3.OperationalError("complex query skipped"), (False, True)),
        (sqlite3.OperationalError("no such column: a"), (True, False)),
        (sqlite3.IntegrityError("UNIQUE constraint failed: timeout.a"), (True, False)),
        (sqlite3.Warning("timeout"), (True, False)),
        (ValueError("timeout"), (True, False)),
    ],
)
def test_flags(error: Exception | None, flags: tuple[bool, bool]) -> None:
    assert helpers.classify(error) == flags


def test_failures_are_told_to_whoever_watches(connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Exception] = []
    monkeypatch.setattr(helpers, "watch", seen.append)
    helpers.execute_queries(["SELECT 1", "SELECT nope"], "", connection)
    assert [str(error) for error in seen] == ["no such column: nope"]


def test_ex_base_runs_both_and_wants_rows(connection: sqlite3.Connection) -> None:
    assert helpers.ex_base(["SELECT 1"], ["SELECT 1.001"], "", connection) == 1
    assert helpers.ex_base(["SELECT 1"], ["SELECT 2"], "", connection) == 0
    assert helpers.ex_base(["SELECT 1"], ["SELECT nope"], "", connection) == 0
    assert helpers.ex_base([], ["SELECT 1"], "", connection) == helpers.ex_base(["SELECT 1"], [], "", connection) == 0
    assert helpers.ex_base(["DELETE FROM t", "SELECT 0"], ["SELECT count(*) FROM t"], "", connection) == 1


def test_the_plan_comparison_always_raises(connection: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.OperationalError, match="cannot rollback"):
        helpers.performance_compare_by_qep(["SELECT 1"], ["SELECT 1"], "", connection)
    assert helpers.performance_compare_by_qep([], ["SELECT 1"], "", connection) == 0


def test_every_name_that_the_module_offers_is_there() -> None:
    assert all(callable(getattr(helpers, name)) for name in helpers.__all__)
