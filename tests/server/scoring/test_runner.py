"""What is scored, reused, missing and not scored, with a scorer that is told what to say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bird_env.errors import ScorerFault
from bird_env.tasks import Task
from bird_server.scoring.attempts import ATTEMPTS
from bird_server.scoring.job import ScoringJob, ScoringResult, Verdict, failure_verdict
from bird_server.scoring.predictions import Predictions
from bird_server.scoring.report import Report
from bird_server.scoring.runner import DatabaseFile, Run, score_file
from bird_server.scoring.verdict_log import VerdictLog

RIGHT = Verdict("success", 1, 0, [], False, False, False, False)
WRONG = Verdict("failed", 0, 0, ["test_1"], False, False, True, False)


def task(name: str, **more: Any) -> Task:
    record = {"instance_id": name, "db_id": "shop", "preprocess_sql": [], "sol_sql": ["right"], "category": "Query"}
    return Task.from_record({**record, **more})


class Scripted:
    """Right is the prediction `right`; a task of the name `faulty` never gets a verdict."""

    def __init__(self) -> None:
        self.jobs: list[ScoringJob] = []

    async def score(self, job: ScoringJob) -> ScoringResult:
        self.jobs.append(job)
        if job.record["instance_id"] == "faulty":
            raise ScorerFault("no room")
        if job.pred_sqls is None and job.mode == "pred":
            return ScoringResult(failure_verdict(job.record), 1.0, "completed")
        right = job.mode == "gold" or job.pred_sqls == ["right"]
        return ScoringResult(RIGHT if right else WRONG, 1.0, "completed")


def run_of(tasks: Sequence[Task], predictions: dict[str, Any]) -> Run:
    return Run(
        tasks=tasks,
        predictions=Predictions(by_id=predictions),
        databases={"shop": DatabaseFile(Path("shop.db"), "0" * 64)},
        absent={"lost": "the database 'lost' cannot be used"},
        versions={"sqlite": "3.40.1"},
    )


async def scored(run: Run, folder: Path, scorer: Scripted | None = None) -> tuple[Report, list[ScoringJob]]:
    scorer = scorer or Scripted()
    with VerdictLog(folder) as log:
        report = await score_file(run, scorer, log, workers=2)
    return report, scorer.jobs


async def test_every_scorable_task_gets_a_verdict_in_order(tmp_path: Path) -> None:
    tasks = [task("b"), task("a"), task("c")]
    report, jobs = await scored(run_of(tasks, {"a": ["right"], "b": ["wrong"]}), tmp_path)
    assert [(each.instance_id, each.success, each.missing) for each in report.scored] == [
        ("b", False, False),
        ("a", True, False),
        ("c", False, True),
    ]
    assert report.missing == ["c"]
    assert {job.record["instance_id"]: job.pred_sqls for job in jobs} == {"a": ["right"], "b": ["wrong"], "c": None}
    lines = [json.loads(line) for line in (tmp_path / "verdicts.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["instance_id"] for line in lines] == ["b", "a", "c"]
    assert lines[2]["official"]["execution_error"] is True
    assert lines[2]["prediction_missing"] is True


async def test_what_cannot_be_scored_is_listed_and_in_no_count(tmp_path: Path) -> None:
    tasks = [
        task("nogold", sol_sql=[]),
        task("nobase", db_id="lost"),
        task("other", db_id="x"),
        task("faulty"),
        task("a"),
    ]
    report, jobs = await scored(run_of(tasks, {"a": ["right"], "faulty": []}), tmp_path)
    assert [(each.instance_id, each.reason) for each in report.unscored] == [
        ("nogold", "it has no gold to be scored with"),
        ("nobase", "the database 'lost' cannot be used"),
        ("other", "there is no database 'x'"),
        ("faulty", "the scorer failed: no room"),
    ]
    assert (report.tally.success, report.tally.total) == (1, 1)
    assert sum(job.record["instance_id"] == "faulty" for job in jobs) == ATTEMPTS


async def test_a_second_run_scores_only_what_has_changed(tmp_path: Path) -> None:
    tasks = [task("a"), task("b"), task("c"), task("d")]
    run = run_of(tasks, {"a": ["right"], "b": ["wrong"], "c": ["wrong"]})
    await scored(run, tmp_path)
    report, jobs = await scored(run, tmp_path)
    assert (jobs, report.reused, report.tally.success) == ([], 4, 1)
    changed = replace(
        run_of([task("a"), task("b"), task("c", category="Efficiency"), task("d")], {"a": ["right"], "b": ["right"]}),
        predictions=Predictions(by_id={"a": ["right"], "b": ["right"], "c": ["wrong"], "d": []}),
    )
    report, jobs = await scored(changed, tmp_path)
    assert sorted(job.record["instance_id"] for job in jobs) == ["b", "c", "d"]
    assert (report.reused, report.tally.success, report.missing) == (1, 2, [])


async def test_another_template_is_scored_again(tmp_path: Path) -> None:
    run = run_of([task("a")], {"a": ["right"]})
    await scored(run, tmp_path)
    _, jobs = await scored(replace(run, databases={"shop": DatabaseFile(Path("shop.db"), "1" * 64)}), tmp_path)
    assert len(jobs) == 1


async def test_gold_needs_no_predictions(tmp_path: Path) -> None:
    run = replace(run_of([task("a"), task("b")], {}), mode="gold")
    report, jobs = await scored(run, tmp_path)
    assert (report.tally.success, report.missing, report.problems) == (2, [], [])
    assert {job.mode for job in jobs} == {"gold"}


async def test_predictions_for_no_task_are_told(tmp_path: Path) -> None:
    report, _ = await scored(run_of([task("a")], {"a": [], "z": []}), tmp_path)
    assert report.problems == ["prediction for no task of the file: z"]


async def test_progress_counts_reused_ones_first(tmp_path: Path) -> None:
    run = run_of([task("a"), task("b")], {"a": ["right"]})
    await scored(run, tmp_path)
    seen: list[int] = []
    with VerdictLog(tmp_path) as log:
        more = replace(run, tasks=[*run.tasks, task("c")])
        await score_file(more, Scripted(), log, workers=1, on_done=seen.append)
    assert seen == [2, 1]
