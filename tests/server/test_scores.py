"""Scores: the verdict of a pool that is given, as a reward or as none at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from bird_env.errors import InternalError, ScorerFault, UnknownDatabase, UnknownTask
from bird_env.models import ScoreStatus
from bird_env.tasks import Task
from bird_server.catalogue import Catalogue
from bird_server.clock import FakeClock
from bird_server.datadir import DataDirectory
from bird_server.engine.port import Engine
from bird_server.library import Library
from bird_server.scores import Scores
from bird_server.scoring.job import ScoringJob, ScoringResult, Verdict
from bird_server.scoring.pool import ScorerPool, ScorerStatistics
from bird_snapshots.template import Template, TemplateStore
from bird_world import GOLD, TASKS, populate


class Pool:
    """Answers with what it is told to."""

    def __init__(self) -> None:
        self.jobs: list[ScoringJob] = []
        self.answer: Verdict | Exception = verdict()

    async def score(self, job: ScoringJob) -> ScoringResult:
        self.jobs.append(job)
        if isinstance(self.answer, Exception):
            raise self.answer
        return ScoringResult(self.answer, 12.34567, "completed", {"secret": GOLD})

    def statistics(self) -> ScorerStatistics:
        return ScorerStatistics(running=2, waiting=3, done=9, zygote_restarts=0)


def verdict(**changes: Any) -> Verdict:
    values: dict[str, Any] = {
        "status": "success",
        "passed": 1,
        "total": 1,
        "failed_tests": [],
        "execution_error": False,
        "timeout_error": False,
        "assertion_error": False,
        "issue_sql_passed_unexpectedly": False,
    }
    return Verdict(**{**values, **changes})


@dataclass(frozen=True, slots=True)
class Rig:
    scores: Scores
    pool: Pool
    template: Template
    root: Path


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    template = populate(tmp_path)
    pool = Pool()
    with closing(Catalogue(tmp_path)) as catalogue:
        library = Library(catalogue, cast("Engine", None), FakeClock())
        templates = TemplateStore(DataDirectory(tmp_path).store)
        yield Rig(Scores(library, templates, cast("ScorerPool", pool), limit_s=7.0), pool, template, tmp_path)


async def test_the_scorer_gets_the_whole_record_and_the_template_itself(rig: Rig) -> None:
    await rig.scores.score("write_1", ("a", "\ud83d"))
    (job,) = rig.pool.jobs
    assert job.record == Task.from_record(TASKS[1]).record
    assert (job.pred_sqls, job.database, job.limit_s, job.mode) == (["a", "\ud83d"], rig.template.path, 7.0, "pred")


@pytest.mark.parametrize(
    ("answer", "status", "reward", "rate"),
    [
        (verdict(), "success", 1.0, 1.0),
        (verdict(passed=1, total=0), "success", 1.0, 1.0),
        (verdict(status="failed", passed=1, total=4), "failed", 0.0, 0.25),
        (verdict(status="failed", passed=0, total=0, execution_error=True), "failed", 0.0, 0.0),
        (verdict(status="failed", passed=0, total=2, timeout_error=True), "failed", 0.0, 0.0),
        (verdict(status="failed", issue_sql_passed_unexpectedly=None), "failed", 0.0, 1.0),
    ],
)
async def test_a_verdict_is_a_reward(rig: Rig, answer: Verdict, status: str, reward: float, rate: float) -> None:
    rig.pool.answer = answer
    score = await rig.scores.score("read_1", ["x"])
    assert (score.task_id, score.status, score.reward) == ("read_1", status, reward)
    assert score.reward_parts == {"official": reward, "pass_rate": rate}
    assert score.official is not None
    assert score.official.model_dump() == answer.as_dict()
    assert score.elapsed_ms == 12.346
    assert GOLD not in score.model_dump_json()


async def test_each_score_names_what_it_was_made_with(rig: Rig) -> None:
    score = await rig.scores.score("read_1", ["x"])
    assert score.versions is not None
    assert score.versions.scorer_sqlite == sqlite3.sqlite_version
    assert score.versions.python.count(".") == 2
    assert score.versions.engine_sqlite


async def test_without_gold_there_is_no_reward_and_nothing_is_run(rig: Rig) -> None:
    score = await rig.scores.score("no_gold", ["x"])
    assert (score.status, score.reward, score.reward_parts) == (ScoreStatus.UNSCORABLE, None, {})
    assert score.official is None
    assert rig.pool.jobs == []


async def test_a_fault_of_the_scorer_stays_a_fault(rig: Rig) -> None:
    rig.pool.answer = ScorerFault("fork: no memory")
    with pytest.raises(ScorerFault):
        await rig.scores.score("read_1", ["x"])


async def test_what_is_not_there_is_named(rig: Rig) -> None:
    with pytest.raises(UnknownTask):
        await rig.scores.score("none", ["x"])
    with pytest.raises(UnknownDatabase):
        await rig.scores.score_task(Task.from_record({**TASKS[0], "selected_database": "none"}), ["x"])
    assert rig.pool.jobs == []


async def test_a_template_that_is_gone_or_damaged_is_no_verdict(rig: Rig) -> None:
    rig.template.path.chmod(0o600)
    rig.template.path.write_bytes(b"nonsense" * 1_000)
    with pytest.raises(InternalError) as damaged:
        await rig.scores.score("read_1", ["x"])
    assert damaged.value.fields["engine_code"] == "template_damaged"
    rig.template.path.unlink()
    with pytest.raises(UnknownDatabase):
        await rig.scores.score("read_1", ["x"])
    assert rig.pool.jobs == []


def test_what_runs_and_what_waits_is_at_work(rig: Rig) -> None:
    assert rig.scores.running == 5
