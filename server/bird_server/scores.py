"""Scores of solutions: the task from the catalogue, its database from the store, the verdict from the scorer.

A fault of the scorer is an error that may be retried, never a verdict; a task without gold is `unscorable`, never
failed.
"""

from __future__ import annotations

import asyncio
import platform
import sqlite3
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from bird_env.models import OfficialVerdict, Score, ScorerVersions, ScoreStatus
from bird_env.tasks import Task
from bird_server.engine.errors import translate
from bird_server.library import Library
from bird_server.scoring.job import ScoringJob
from bird_server.scoring.pool import ScorerPool
from bird_snapshots.errors import SnapshotError
from bird_snapshots.template import TemplateStore
from bird_snapshots.versions import sqlite_version


class Scores:
    """Scores solutions, one child process each."""

    def __init__(self, library: Library, templates: TemplateStore, pool: ScorerPool, *, limit_s: float) -> None:
        self._library = library
        self._templates = templates
        self._pool = pool
        self._limit_s = limit_s
        self.versions = ScorerVersions(
            python=platform.python_version(),
            scorer_sqlite=sqlite3.sqlite_version,
            engine_sqlite=sqlite_version(),
            bird_env=version("bird-env"),
        )

    @property
    def running(self) -> int:
        """Scorings that run or wait."""
        statistics = self._pool.statistics()
        return statistics.running + statistics.waiting

    async def score(self, task_id: str, solution: Sequence[str]) -> Score:
        """Score a solution of a task.

        Raises:
            UnknownTask: The catalogue has no such task.
            UnknownDatabase: The task's database was not imported, or its template is gone.
            ScorerFault: The scorer could not do its work; no verdict was reached.
        """
        return await self.score_task(await self._library.task(task_id), solution)

    async def score_task(self, task: Task, solution: Sequence[str]) -> Score:
        """As `score`, of a task at hand."""
        if not task.scorable:
            return unscorable(task.instance_id, self.versions)
        database = await self._library.database(task.database)
        job = ScoringJob(
            record=dict(task.record),
            pred_sqls=list(solution),
            database=await asyncio.to_thread(self._path_of, database.digest),
            limit_s=self._limit_s,
        )
        result = await self._pool.score(job)
        verdict = OfficialVerdict(**result.verdict.as_dict())
        success = verdict.status == "success"
        tests = max(verdict.total, 1)  # a task without tests has the default one, which the evaluator counts as 0
        return Score(
            task_id=task.instance_id,
            status=ScoreStatus.SUCCESS if success else ScoreStatus.FAILED,
            reward=1.0 if success else 0.0,
            reward_parts={"official": 1.0 if success else 0.0, "pass_rate": verdict.passed / tests},
            official=verdict,
            elapsed_ms=round(result.elapsed_ms, 3),
            versions=self.versions,
        )

    def _path_of(self, digest: str) -> Path:
        try:
            return self._templates.get(digest).path
        except SnapshotError as error:
            raise translate(error) from error


def unscorable(task_id: str | None, versions: ScorerVersions) -> Score:
    """What is said of a solution that nothing can judge: no reward, which a trainer must mask."""
    return Score(task_id=task_id, status=ScoreStatus.UNSCORABLE, reward=None, versions=versions)
