"""The functions that the benchmark's tests call to run SQL, on the stdlib's `sqlite3` as in the official evaluator.

Tests find them as globals and as the module `sqlite_test_utils`. Before every statement WAL and `synchronous=OFF` are
set anew, outside the error handling: inside an open transaction that fails, and then nothing is rolled back. Whatever
is not a SELECT by its first word is committed before its rows are fetched. Written from a behavioural specification of
https://github.com/bird-bench/BIRD-CRITIC-1; the rules and their consequences are in docs/scoring.md.

Unlike the official code, rows beyond the cap are stepped through and dropped at once instead of being held.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from bird_server.scoring.comparison import (
    check_sql_function_usage,
    equal_results,
    preprocess_results,
    remove_comments,
    remove_distinct,
    remove_round,
)

__all__ = [
    "check_sql_function_usage",
    "ex_base",
    "execute_queries",
    "get_connection",
    "perform_query_on_sqlite_databases",
    "performance_compare_by_qep",
    "preprocess_results",
    "remove_comments",
    "remove_distinct",
    "remove_round",
]

#: Rows of a SELECT that are kept: the official evaluator cuts there.
ROW_CAP = 10_000
#: Seconds that a connection waits for a lock.
BUSY_S = 30

#: Told of every statement that fails; the child watches for a full disk through it.
watch: Callable[[Exception], None] | None = None

_TIMEOUT_WORDS = ("database is locked", "timeout", "complex query skipped")
_PLANNED = ("SELECT", "INSERT", "UPDATE", "DELETE")


def get_connection(db_path: str) -> sqlite3.Connection:
    """A connection to an existing database, with the official settings."""
    connection = sqlite3.connect(f"file:{db_path}?mode=rw", uri=True, timeout=BUSY_S)
    connection.execute(f"PRAGMA busy_timeout = {BUSY_S * 1000}")
    return connection


def perform_query_on_sqlite_databases(
    query: str, db_path: str, conn: sqlite3.Connection | None = None, query_timeout: int = BUSY_S
) -> tuple[list[Any], sqlite3.Connection]:
    """Run one statement and return its rows and the connection; without one, `db_path` is opened.

    Args:
        query_timeout: Accepted and not used: the official evaluator has no limit on a statement.

    Raises:
        sqlite3.Error: The statement failed; its own effects are rolled back.
        AttributeError, UnicodeEncodeError: The statement is no text that SQLite could take.
    """
    if conn is None:
        conn = get_connection(db_path)
    cursor = conn.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=OFF")
    try:
        opening = query.strip().lower()
        cursor.execute(query)
        if opening.startswith(("select", "with")):
            return _capped_rows(cursor), conn
        conn.commit()
        return cursor.fetchall(), conn
    except Exception:
        conn.rollback()
        raise


def _capped_rows(cursor: sqlite3.Cursor) -> list[Any]:
    """The first rows, the others stepped through: an error beyond the cap is an error."""
    rows = cursor.fetchmany(ROW_CAP)
    if len(rows) == ROW_CAP:
        for _ in cursor:
            pass
    return rows


def execute_queries(
    queries: list[str] | str,
    db_path: str,
    conn: sqlite3.Connection | None,
    logger: Any = None,
    section_title: str = "",
    return_error: bool = False,
) -> tuple[Any, ...]:
    """Run statements in order up to the first error.

    Returns:
        (result of the last statement that succeeded or None, execution error, timeout error), and the message with
        `return_error`. A "timeout" is an error whose message says so: a lock, or any name that holds the word.
    """
    result, error = run_queries(queries, db_path, conn)
    execution_error, timeout_error = classify(error)
    if return_error:
        return result, execution_error, timeout_error, "" if error is None else str(error)
    return result, execution_error, timeout_error


def run_queries(
    queries: list[str] | str, db_path: str, conn: sqlite3.Connection | None
) -> tuple[Any, Exception | None]:
    """The last good result and the error that ended the list, as it was raised."""
    result: Any = None
    for query in [queries] if isinstance(queries, str) else queries:
        try:
            result, conn = perform_query_on_sqlite_databases(query, db_path, conn=conn)
        except Exception as error:  # noqa: BLE001 - whatever a statement raises is its outcome
            if watch is not None:
                watch(error)
            return result, error
    return result, None


def classify(error: Exception | None) -> tuple[bool, bool]:
    """(execution error, timeout error) as the official evaluator flags an exception."""
    if error is None:
        return False, False
    message = str(error).lower()
    timeout = isinstance(error, sqlite3.OperationalError) and any(word in message for word in _TIMEOUT_WORDS)
    return not timeout, timeout


def ex_base(
    pred_sqls: list[str],
    sol_sqls: list[str],
    db_path: str,
    conn: sqlite3.Connection | None,
    conditions: Any = None,
) -> int:
    """1 if prediction and gold, run one after the other on this connection, give equal non-empty results; else 0."""
    if not pred_sqls or not sol_sqls:
        return 0
    pred_rows, pred_failed, pred_timed_out = execute_queries(pred_sqls, db_path, conn)
    gold_rows, gold_failed, gold_timed_out = execute_queries(sol_sqls, db_path, conn)
    if pred_failed or pred_timed_out or gold_failed or gold_timed_out:
        return 0
    return equal_results(preprocess_results(pred_rows), preprocess_results(gold_rows), conditions)


def performance_compare_by_qep(
    old_sqls: list[str], sol_sqls: list[str], db_path: str, conn: sqlite3.Connection | None
) -> int:
    """1 if the second list has fewer statements with a plan than the first; never offered as a global.

    As in the official code it always raises: its BEGIN is committed by the query function, so its ROLLBACK fails.

    Raises:
        sqlite3.OperationalError: "cannot rollback - no transaction is active".
    """
    if not old_sqls or not sol_sqls:
        return 0
    costs: list[float] = []
    for sqls in (old_sqls, sol_sqls):
        perform_query_on_sqlite_databases("BEGIN", db_path, conn=conn)
        try:
            costs.append(_plan_cost(sqls, db_path, conn))
        finally:
            perform_query_on_sqlite_databases("ROLLBACK", db_path, conn=conn)
    return 1 if costs[1] < costs[0] else 0


def _plan_cost(sqls: list[str], db_path: str, conn: sqlite3.Connection | None) -> float:
    cost = 0.0
    for sql in sqls:
        if not sql.strip().upper().startswith(_PLANNED):
            perform_query_on_sqlite_databases(sql, db_path, conn=conn)
            continue
        plan, _ = perform_query_on_sqlite_databases(f"EXPLAIN QUERY PLAN {sql}", db_path, conn=conn)
        cost += 1.0 if plan else 0.0
    return cost
