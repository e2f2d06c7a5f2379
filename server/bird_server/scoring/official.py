"""The flow of one official scoring: phase 1 with the issue SQL, phase 2 with the prediction, in this process.

Both phases run `preprocess_sql`, then the statements under judgement, then each test; phase 2 ends with `clean_up_sql`.
Phase 1 must fail somehow, else the task's issue is no issue and the prediction fails whatever it did. The objects that
tests see (`sol_sqls`, `conditions`, the helper functions) are the same in both phases, as tests can tell; between the
phases the database file is replaced, and phase 1's connection stays on the file that it replaced first.

Written from a behavioural specification of https://github.com/bird-bench/BIRD-CRITIC-1, order and faults included.
What it leaves out: the process around it (`child`), the clock and the kill (`zygote`), so a runaway statement runs on.
"""

from __future__ import annotations

import contextlib
import gc
import io
import sqlite3
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Protocol, cast

from bird_server.scoring import helpers
from bird_server.scoring.job import Mode, Verdict, failure_verdict

#: The test of a task that brings none: both lists without comments, DISTINCT and ROUND must give equal results.
DEFAULT_TEST = """
def test_case(pred_sqls, sol_sqls, db_path, conn, conditions):
    pred_sqls = remove_round(remove_distinct(remove_comments(pred_sqls)))
    sol_sqls = remove_round(remove_distinct(remove_comments(sol_sqls)))
    assert ex_base(pred_sqls, sol_sqls, db_path, conn, conditions) == 1, "results differ"
"""

_PROLOGUE = "import datetime\nfrom datetime import date\n"
_CALL = "\ntest_case(pred_sqls, sol_sqls, db_path, conn, **kwargs)"

#: What a test finds as its globals, beside builtins and the prediction's result: the same function objects each time.
_OFFERED: dict[str, Any] = {
    "perform_query_on_sqlite_databases": helpers.perform_query_on_sqlite_databases,
    "execute_queries": helpers.execute_queries,
    "ex_base": helpers.ex_base,
    "check_sql_function_usage": helpers.check_sql_function_usage,
    "remove_distinct": helpers.remove_distinct,
    "remove_comments": helpers.remove_comments,
    "remove_round": helpers.remove_round,
    "preprocess_results": helpers.preprocess_results,
    "date": date,
}

#: Bounds of what is told to operators, so that a hostile message cannot grow the reply.
_DETAIL_TESTS = 200
_DETAIL_CHARS = 2_000


class Workspace(Protocol):
    """The database file of one scoring."""

    @property
    def db_path(self) -> str:
        """The path as tests see it."""
        ...

    @property
    def file(self) -> str:
        """The same file by its absolute path."""
        ...

    def reset(self) -> None:
        """Put a fresh copy where the file is, its sidecar files gone. The old file may still be open.

        Raises:
            OSError: The copy could not be put there.
        """
        ...


@dataclass(slots=True)
class Evaluation:
    """What came of one list of statements and the tests after it."""

    passed: int = 0
    failed_tests: list[str] = field(default_factory=list[str])
    execution_error: bool = False
    timeout_error: bool = False
    assertion_error: bool = False
    detail: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def clean(self) -> bool:
        return not (self.execution_error or self.timeout_error or self.assertion_error)


@dataclass(slots=True)
class _Case:
    """The parts of a record that both phases share, object by object."""

    sol_sqls: list[Any]
    tests: Iterable[Any]
    kwargs: dict[str, Any]


def as_statements(value: Any) -> list[Any]:
    """A list field as the official evaluator reads it: nothing is split, stripped or checked."""
    if not value:
        return []
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return cast("list[object]", value)
    return []


def missing_keys(record: Mapping[str, Any], *, pred_missing: bool, mode: Mode) -> list[str]:
    """The keys without which the official evaluator does not start; null is as good as any value."""
    missing = [key for key in ("preprocess_sql", "sol_sql") if key not in record]
    if mode == "pred" and pred_missing:
        missing.append("pred_sqls")
    return missing


def run(record: Mapping[str, Any], pred_sqls: Any, mode: Mode, workspace: Workspace) -> tuple[Verdict, dict[str, Any]]:
    """Judge one prediction.

    Returns:
        The verdict, and the detail for operators: `phases`, each with its first statement error and its tests.

    Raises:
        BaseException: A test ended the process (`sys.exit`, KeyboardInterrupt): there is no verdict then.
    """
    missing = missing_keys(record, pred_missing=pred_sqls is None, mode=mode)
    tests: Any = record.get("test_cases", [])
    if missing or not isinstance(tests, list | str | dict):
        cause = f"missing: {', '.join(missing)}" if missing else "test_cases has no length"
        return failure_verdict(record), {"record": cause}
    tests = cast("list[Any]", tests)
    total = len(tests)
    case = _Case(
        sol_sqls=as_statements(record["sol_sql"]),
        tests=tests or [DEFAULT_TEST],
        kwargs={"conditions": record.get("conditions", {})},
    )
    prediction = case.sol_sqls if mode == "gold" else as_statements(pred_sqls)
    final = Evaluation()
    issue_passed = False
    detail: dict[str, Any] = {"phases": {}}
    # Phase 1's connection is kept to the end: closed, it would remove the files beside the database by their names, and
    # those are phase 2's by then.
    first: sqlite3.Connection | None = None
    connection: sqlite3.Connection | None = None
    issue = as_statements(record.get("issue_sql"))
    try:
        if issue or as_statements(record["preprocess_sql"]):  # else phase 1 does nothing that could be seen
            first = _connect(workspace)
            workspace.reset()
            helpers.run_queries(as_statements(record["preprocess_sql"]), workspace.db_path, first)
            if issue:
                judged = _evaluate(issue, case, workspace.db_path, first)
                detail["phases"]["issue"] = judged.detail
                issue_passed = judged.clean
            workspace.reset()
        connection = _connect(workspace)
        helpers.run_queries(as_statements(record["preprocess_sql"]), workspace.db_path, connection)
        final = _evaluate(prediction, case, workspace.db_path, connection)
        detail["phases"]["prediction"] = final.detail
        helpers.run_queries(as_statements(record.get("clean_up_sql")), workspace.db_path, connection)
    except Exception as error:  # noqa: BLE001 - the official evaluator files any exception here as an execution error
        final = Evaluation(execution_error=True)
        detail["error"] = describe(error)
    finally:
        _finish(connection)
    del first
    failed = issue_passed or not final.clean
    verdict = Verdict(
        status="failed" if failed else "success",
        passed=final.passed,
        total=total,
        failed_tests=final.failed_tests,
        execution_error=final.execution_error,
        timeout_error=final.timeout_error,
        assertion_error=final.assertion_error,
        issue_sql_passed_unexpectedly=issue_passed,
    )
    return verdict, detail


def _connect(workspace: Workspace) -> sqlite3.Connection:
    """A phase's connection, opened by a first query as in the official run.

    So it is in WAL mode before the file is replaced under it; a rollback journal would find its file moved and refuse.
    """
    return helpers.perform_query_on_sqlite_databases("SELECT 1", workspace.file)[1]


def _finish(connection: sqlite3.Connection | None) -> None:
    """Commit and close, whatever state the tests left the connection in."""
    if connection is not None:
        with contextlib.suppress(sqlite3.Error):
            connection.commit()
        with contextlib.suppress(sqlite3.Error):
            connection.close()
    gc.collect()


def _evaluate(statements: list[Any], case: _Case, db_path: str, connection: sqlite3.Connection) -> Evaluation:
    result, error = helpers.run_queries(statements, db_path, connection)
    outcome = Evaluation()
    outcome.execution_error, outcome.timeout_error = helpers.classify(error)
    if error is not None:
        outcome.detail["statement_error"] = describe(error)
        return outcome
    told: list[dict[str, Any]] = []
    for number, test in enumerate(case.tests, start=1):
        failure = _run_test(test, statements, result, case, db_path, connection)
        if failure is None:
            outcome.passed += 1
        else:
            outcome.failed_tests.append(f"test_{number}")
        if len(told) < _DETAIL_TESTS:
            told.append({"passed": failure is None, **({} if failure is None else describe(failure))})
    outcome.assertion_error = bool(outcome.failed_tests)
    outcome.detail["tests"] = told
    return outcome


def _run_test(
    test: Any, statements: list[Any], result: Any, case: _Case, db_path: str, connection: sqlite3.Connection
) -> Exception | None:
    """Run one test function; its exception, or None where it passed.

    Globals and locals are two mappings: what a test defines or imports at its top is not seen inside `test_case`.
    """
    global_names: dict[str, Any] = {**_OFFERED, "pred_query_result": result}
    local_names: dict[str, Any] = {
        "conn": connection,
        "pred_sqls": statements,
        "sol_sqls": case.sol_sqls,
        "db_path": db_path,
        "kwargs": case.kwargs,
    }
    visible = sys.stdout
    sys.stdout = io.StringIO()
    try:
        # Neither `-O` nor this module's own __future__ imports may reach the test: its asserts are the verdict.
        code = compile(_PROLOGUE + test + _CALL, "<string>", "exec", dont_inherit=True, optimize=0)
        exec(code, global_names, local_names)
    except Exception as error:  # noqa: BLE001 - any exception of a test is a failed test
        return error.with_traceback(None)
    finally:
        sys.stdout = visible
    return None


def describe(error: BaseException) -> dict[str, Any]:
    """An exception as data, its message bounded; an exception that cannot be printed keeps its class."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - the exception class belongs to a test and may do anything
        message = ""
    message = message[:_DETAIL_CHARS].encode("utf-8", "backslashreplace").decode("utf-8")
    told: dict[str, Any] = {"exception": type(error).__name__, "message": message}
    code = getattr(error, "sqlite_errorname", None)
    if isinstance(code, str):
        told["sqlite_code"] = code
    return told
