"""Validation of tasks: what counts as sound, what is said of the others; a fault of the scorer is no verdict."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from bird_env.errors import ScorerFault, UnknownDatabase
from bird_env.tasks import Task
from bird_server.scoring.attempts import ATTEMPTS
from bird_server.scoring.job import ScoringJob, ScoringResult, Verdict
from bird_server.scoring.pool import ScorerPool
from bird_server.validation import TaskCheck, check, validate

ANYTHING_PASSES = "def test_case(pred_sqls, sol_sqls, db_path, conn, conditions):\n    pass"
NOTHING_PASSES = "def test_case(pred_sqls, sol_sqls, db_path, conn, conditions):\n    assert False, 'as written\\nmore'"
GOLD_PASSES = "def test_case(pred_sqls, sol_sqls, db_path, conn, conditions):\n    assert pred_sqls == sol_sqls"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("db") / "shop.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE t(a); INSERT INTO t VALUES (1), (2);")
    connection.close()
    return path


def task(**fields: Any) -> Task:
    record = {"instance_id": "x", "db_id": "shop", "preprocess_sql": [], "sol_sql": ["SELECT a FROM t"], **fields}
    return Task.from_record({key: value for key, value in record.items() if value != "absent"})


@pytest.mark.parametrize(
    ("fields", "gold", "issue", "causes"),
    [
        ({"issue_sql": ["SELECT 1"]}, "pass", "fail", []),
        ({"issue_sql": ["SELECT nope"]}, "pass", "fail", []),
        ({"issue_sql": []}, "pass", "unchecked", []),
        ({}, "pass", "unchecked", []),
        (
            {"sol_sql": ["SELECT nope"]},
            "fail",
            "unchecked",
            ["a statement raises OperationalError: no such column: nope"],
        ),
        ({"sol_sql": ["SELECT a FROM t WHERE a > 9"]}, "fail", "unchecked", ["test_1"]),
        (
            {"test_cases": [ANYTHING_PASSES, NOTHING_PASSES]},
            "fail",
            "unchecked",
            ["test_2: AssertionError: as written"],
        ),
        ({"issue_sql": ["SELECT 1"], "test_cases": [GOLD_PASSES]}, "pass", "fail", []),
        (
            {"issue_sql": ["SELECT a FROM t"]},
            "fail",
            "pass",
            ["fails every solution of a task whose issue_sql passes", "issue_sql passes every test"],
        ),
        ({"preprocess_sql": "absent"}, "fail", "unchecked", ["no preprocess_sql"]),
        ({"test_cases": None}, "fail", "unchecked", ["test_cases is null"]),
        ({"sol_sql": [], "test_cases": [ANYTHING_PASSES]}, "unchecked", "unchecked", []),
    ],
)
async def test_what_is_said_of_a_task(
    database: Path, fields: dict[str, Any], gold: str, issue: str, causes: list[str]
) -> None:
    async with ScorerPool(children=1) as pool:
        found = await check(task(**fields), lambda _: database, pool, limit_s=30.0)
    assert (found.gold, found.issue, found.broken) == (gold, issue, bool(causes))
    assert len(found.causes) == len(causes)
    for cause, part in zip(found.causes, causes, strict=True):
        assert part in cause


class FakeScorer:
    """Answers with a success after a number of faults; counts what runs at once."""

    def __init__(self, *, faults: int = 0) -> None:
        self.faults = faults
        self.running = 0
        self.most = 0

    async def score(self, job: ScoringJob) -> ScoringResult:
        if self.faults:
            self.faults -= 1
            raise ScorerFault("it died")
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)  # lets the others run
        self.running -= 1
        return ScoringResult(Verdict("success", 1, 1, [], False, False, False, None), 1.0, "completed")


async def test_a_fault_of_the_scorer_is_tried_again(database: Path) -> None:
    found = await check(task(), lambda _: database, FakeScorer(faults=ATTEMPTS - 1), limit_s=1.0)
    assert (found.gold, found.causes) == ("pass", ())
    found = await check(task(), lambda _: database, FakeScorer(faults=ATTEMPTS), limit_s=1.0)
    assert (found.gold, found.causes) == ("unchecked", ("not checked: it died",))


async def test_a_task_without_its_database_is_told_of() -> None:
    def absent(_: Task) -> Path:
        raise UnknownDatabase("There is no database 'shop'.")

    found = await check(task(), absent, FakeScorer(), limit_s=1.0)
    assert found.causes == ("not checked: There is no database 'shop'.",)


async def test_what_cannot_be_scored_is_left_out_and_no_more_run_than_workers(database: Path) -> None:
    tasks = [task(instance_id=str(number), sol_sql=["x"] if number % 2 else []) for number in range(40)]
    scorer = FakeScorer()
    found: list[TaskCheck] = [one async for one in validate(tasks, lambda _: database, scorer, workers=3)]
    assert sorted(int(one.instance_id) for one in found) == list(range(1, 40, 2))
    assert scorer.most == 3


async def test_stopping_early_leaves_nothing_running(database: Path) -> None:
    tasks = [task(instance_id=str(number)) for number in range(10)]
    checks = validate(tasks, lambda _: database, FakeScorer(), workers=4)
    async for _ in checks:
        break
    await checks.aclose()
    assert [one for one in asyncio.all_tasks() if one is not asyncio.current_task()] == []


async def test_a_gold_that_never_ends_is_told_of(database: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    async with ScorerPool(children=1) as pool:
        found = await check(task(sol_sql=[endless]), lambda _: database, pool, limit_s=0.5)
    assert found.causes == ("gold fails: it was ended at the time limit",)
