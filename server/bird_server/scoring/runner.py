"""Scoring a file of predictions without a server: what to score, what to reuse, what cannot be scored.

Every scorable task gets a verdict: of its prediction, or the official failure record where it has none. A task without
gold, a database that is not there, and a fault of the scorer that does not go away leave a task unscored, which is
listed and in no count. Verdicts are on disk as they come (`verdict_log`): a run can be ended and taken up again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bird_env.errors import ScorerFault
from bird_env.tasks import Task
from bird_server.scoring.attempts import Scorer, score_patiently
from bird_server.scoring.job import OFFICIAL_LIMIT_S, Mode, ScoringJob
from bird_server.scoring.predictions import Predictions, prediction_digest
from bird_server.scoring.report import Report, Scored, Unscored
from bird_server.scoring.verdict_log import LoggedVerdict, ScoringKey, VerdictLog

#: What stands for a prediction's digest where the gold itself is judged, or where there is none.
_GOLD, _MISSING = "gold", "missing"


@dataclass(frozen=True, slots=True)
class DatabaseFile:
    """An immutable database and its hash."""

    path: Path
    sha256: str


@dataclass(frozen=True, slots=True)
class Run:
    """What is scored, how, and with what.

    Args:
        databases: By name. A name that is not there makes its tasks unscorable, for the reason in `absent`.
        absent: Why a database is not there, by name.
        versions: What judges; a verdict of other versions is not reused.
    """

    tasks: Sequence[Task]
    predictions: Predictions
    databases: Mapping[str, DatabaseFile]
    absent: Mapping[str, str]
    versions: Mapping[str, str]
    mode: Mode = "pred"
    limit_s: float = OFFICIAL_LIMIT_S


@dataclass(frozen=True, slots=True)
class _Planned:
    task: Task
    job: ScoringJob
    key: ScoringKey
    missing: bool


async def score_file(
    run: Run, scorer: Scorer, log: VerdictLog, *, workers: int, on_done: Callable[[int], None] = lambda _: None
) -> Report:
    """Score what has no verdict yet, `workers` at once.

    Args:
        on_done: Told how many tasks are just settled: first those that need no scoring, then one at a time.

    Returns:
        The report; `verdicts.jsonl` holds every verdict in the tasks' order.
    """
    unscored: dict[str, str] = {}
    verdicts: dict[str, LoggedVerdict] = {}
    waiting: list[_Planned] = []
    missing: set[str] = set()
    for task in run.tasks:
        planned = _plan(run, task)
        if isinstance(planned, str):
            unscored[task.instance_id] = planned
            continue
        if planned.missing:
            missing.add(task.instance_id)
        known = log.reuse(task.instance_id, planned.key)
        if known is None:
            waiting.append(planned)
        else:
            verdicts[task.instance_id] = known
    log.begin()
    reused = len(verdicts)
    on_done(len(run.tasks) - len(waiting))
    queue = iter(waiting)

    async def work() -> None:
        for planned in queue:
            instance_id = planned.task.instance_id
            try:
                result = await score_patiently(scorer, planned.job)
            except ScorerFault as error:
                unscored[instance_id] = f"the scorer failed: {error.detail}"
            else:
                more = {"category": planned.task.category, "prediction_missing": planned.missing}
                verdicts[instance_id] = log.add(instance_id, planned.key, result, **more)
            on_done(1)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(workers, len(waiting))):
            group.create_task(work())
    log.finish(task.instance_id for task in run.tasks)
    return Report(
        scored=[
            Scored(task.instance_id, task.category, verdicts[task.instance_id].verdict, task.instance_id in missing)
            for task in run.tasks
            if task.instance_id in verdicts
        ],
        unscored=[
            Unscored(task.instance_id, unscored[task.instance_id]) for task in run.tasks if task.instance_id in unscored
        ],
        problems=[*run.predictions.problems, *_strangers(run)],
        reused=reused,
        mode=run.mode,
        limit_s=run.limit_s,
        versions=dict(run.versions),
    )


def _plan(run: Run, task: Task) -> _Planned | str:
    """The job of a task, or why it has none."""
    if not task.scorable:
        return "it has no gold to be scored with"
    database = run.databases.get(task.database)
    if database is None:
        return run.absent.get(task.database, f"there is no database {task.database!r}")
    gold = run.mode == "gold"
    missing = not gold and task.instance_id not in run.predictions.by_id
    prediction = None if gold or missing else run.predictions.by_id[task.instance_id]
    digest = _GOLD if gold else _MISSING if missing else prediction_digest(prediction)
    key = ScoringKey(task.digest, database.sha256, digest, run.mode, run.limit_s, tuple(sorted(run.versions.items())))
    return _Planned(task, ScoringJob(task.record, prediction, database.path, run.mode, run.limit_s), key, missing)


def _strangers(run: Run) -> list[str]:
    """Predictions that no task asked for: a sign of a wrong file."""
    if run.mode == "gold":
        return []
    known = {task.instance_id for task in run.tasks}
    return [f"prediction for no task of the file: {name}" for name in run.predictions.by_id if name not in known]
