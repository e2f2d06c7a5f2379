"""From files to a report: reads tasks and predictions, finds databases, scores, writes `report.txt`. No server runs.

The pieces are elsewhere (`bird_env.tasks`, `predictions`, `databases`, `runner`, `verdict_log`, `report`); this is
their order. The output folder is locked for the run, and the templates that the run publishes live in it until it ends.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TypeAlias

from bird_env.tasks import read_tasks
from bird_server.scoring.databases import collect
from bird_server.scoring.job import OFFICIAL_LIMIT_S, Mode
from bird_server.scoring.pool import ScorerPool, usable_cores
from bird_server.scoring.predictions import Predictions, read_predictions
from bird_server.scoring.report import Report
from bird_server.scoring.runner import Run, score_file
from bird_server.scoring.verdict_log import VerdictLog

REPORT_NAME = "report.txt"
_TEMPLATES = ".templates-"

#: Shows the way through a stage: a label and a number of things in, a function that counts some of them out.
Progress: TypeAlias = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


@dataclass(frozen=True, slots=True)
class Request:
    """What `bird-env score` was asked; see there."""

    tasks: Path
    databases: Path
    out: Path
    predictions: Path | None = None
    gold: Path | None = None
    mode: Mode = "pred"
    limit_s: float = OFFICIAL_LIMIT_S
    workers: int | None = None


async def score_whole_file(
    request: Request, progress: Progress, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> Report:
    """Score a file of predictions and write `report.txt` and `verdicts.jsonl`.

    Raises:
        DataError: A file cannot be used, or another run holds the output folder.
        ScorerFault: The scorer does not start.
    """
    file = await asyncio.to_thread(read_tasks, request.tasks, gold=request.gold)
    predictions = Predictions()
    if request.predictions is not None:
        predictions = await asyncio.to_thread(read_predictions, request.predictions)
    workers = request.workers if request.workers is not None else usable_cores()
    with VerdictLog(request.out) as log:
        for left in request.out.glob(f"{_TEMPLATES}*"):  # of a run that was killed
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=_TEMPLATES, dir=request.out, ignore_cleanup_errors=True) as store:
            names = {task.database for task in file.tasks if task.scorable}
            with progress("databases", len(names)) as advance:
                databases = await asyncio.to_thread(
                    collect, request.databases, names, Path(store), on_database=lambda: advance(1)
                )
            async with ScorerPool(children=workers) as pool:
                run = Run(
                    tasks=file.tasks,
                    predictions=predictions,
                    databases=databases.found,
                    absent=databases.absent,
                    versions={"bird_env": version("bird-env"), **pool.versions},
                    mode=request.mode,
                    limit_s=request.limit_s,
                )
                with progress("scoring", len(file.tasks)) as advance:
                    report = await score_file(run, pool, log, workers=workers, on_done=advance)
        report.problems = [*(str(problem) for problem in file.problems), *report.problems]
        report.dropped = file.dropped
        (request.out / REPORT_NAME).write_text(report.text(now()), encoding="utf-8")
    return report
