"""Whether tasks are sound: the gold must pass and the user's own attempt must fail, as the scorer judges them.

Two scorings a task: its gold (mode `gold`), and its `issue_sql` given as a prediction. A task that has one but not the
other is checked for what it has (BIRD has no attempts). What cannot be scored at all is not checked and not broken.

The official verdict of any solution is `failed` where the issue's own statements pass. Therefore an attempt counts as
failing by its errors and tests, not by the verdict's status, and a gold that only suffers from it is told so.

Leaves out: where tasks and databases come from, and how the outcome is shown (`commands.tasks`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bird_env.errors import BirdEnvError
from bird_env.tasks import Task
from bird_server.scoring.attempts import Scorer, score_patiently
from bird_server.scoring.job import OFFICIAL_LIMIT_S, ScoringJob, ScoringResult, Verdict

Checked = Literal["pass", "fail", "unchecked"]


@dataclass(frozen=True, slots=True)
class TaskCheck:
    """What came of one task.

    Args:
        gold: Whether its gold solution passes.
        issue: Whether its issue_sql passes, which it must not.
        causes: Why it is broken, a sentence each; empty for a sound one.
    """

    instance_id: str
    database: str
    gold: Checked
    issue: Checked
    causes: tuple[str, ...]
    elapsed_ms: float

    @property
    def broken(self) -> bool:
        return bool(self.causes)


async def validate(
    tasks: Sequence[Task],
    database_of: Callable[[Task], Path],
    scorer: Scorer,
    *,
    workers: int,
    limit_s: float = OFFICIAL_LIMIT_S,
) -> AsyncGenerator[TaskCheck]:
    """Check each scorable task, `workers` at once; each outcome as it comes, in no order.

    Args:
        database_of: The immutable database file of a task; raises a BirdEnvError where there is none.
    """
    waiting = iter([task for task in tasks if task.scorable])
    running: set[asyncio.Task[TaskCheck]] = set()

    def start() -> None:
        for task in waiting:
            running.add(asyncio.create_task(check(task, database_of, scorer, limit_s=limit_s)))
            return

    try:
        for _ in range(workers):
            start()
        while running:
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            running -= done
            for finished in done:
                start()
                yield await finished
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def check(task: Task, database_of: Callable[[Task], Path], scorer: Scorer, *, limit_s: float) -> TaskCheck:
    """Check one task."""
    gold: Checked = "unchecked"
    issue: Checked = "unchecked"
    causes: list[str] = []
    elapsed_ms = 0.0
    try:
        database = database_of(task)
        if task.sol_sql:
            result = await score_patiently(scorer, ScoringJob(task.record, None, database, "gold", limit_s))
            elapsed_ms += result.elapsed_ms
            gold = "pass" if result.verdict.status == "success" else "fail"
            if gold == "fail":
                causes.append(f"gold fails: {_why_failed(result, task)}")
        if task.issue_sql:
            statements = task.record["issue_sql"]
            result = await score_patiently(scorer, ScoringJob(task.record, statements, database, "pred", limit_s))
            elapsed_ms += result.elapsed_ms
            issue = "fail" if _flagged(result.verdict) else "pass"
            if issue == "pass":
                causes.append("issue_sql passes every test: there is nothing to mend")
    except BirdEnvError as error:
        causes.append(f"not checked: {error.detail}")
    return TaskCheck(task.instance_id, task.database, gold, issue, tuple(causes), elapsed_ms)


def _flagged(verdict: Verdict) -> bool:
    return verdict.execution_error or verdict.timeout_error or verdict.assertion_error


def _why_failed(result: ScoringResult, task: Task) -> str:
    verdict = result.verdict
    if result.ended != "completed":
        return "it was ended at the time limit" if result.ended == "killed_at_limit" else "its process died"
    if verdict.issue_sql_passed_unexpectedly and not _flagged(verdict):
        return "the evaluator fails every solution of a task whose issue_sql passes"
    for key in ("preprocess_sql", "sol_sql"):
        if key not in task.record:
            return f"the record has no {key}, which the evaluator demands"
    if task.record.get("test_cases", []) is None:
        return "test_cases is null, with which the evaluator stops"
    phase: dict[str, Any] = result.detail.get("phases", {}).get("prediction", {})
    error = phase.get("statement_error") or result.detail.get("error")
    if error is not None:
        return f"{'a statement' if 'statement_error' in phase else 'it'} raises {_told(error)}"
    failed = [test for test in phase.get("tests", []) if not test.get("passed")]
    if failed:
        return f"{', '.join(verdict.failed_tests)}: {_told(failed[0])}"
    return f"{verdict.passed} of {verdict.total} tests pass"


def _told(error: dict[str, Any]) -> str:
    message = str(error.get("message", "")).strip().split("\n", 1)[0]
    return f"{error.get('exception', 'an error')}{f': {message}' if message else ''}"
