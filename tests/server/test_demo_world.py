"""The demonstration's world: it is the same every time, its tasks are sound, and its script knows what it will get."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bird_env.models import ExecuteSql, Outcome, Submit
from bird_env.tasks import Task
from bird_server.demo_material.changes import CHANGES
from bird_server.demo_material.policy import KINDS
from bird_server.demo_material.questions import QUESTIONS
from bird_server.demo_world import DATABASE, TASKS, build_database, script
from bird_server.scoring.job import ScoringJob
from bird_server.scoring.pool import ScorerPool
from bird_server.validation import validate
from bird_snapshots.limits import Limits
from bird_snapshots.replica import Replica
from bird_snapshots.store import Store

ALL = [*QUESTIONS, *CHANGES]
BRIEF = Limits(cpu_s=0.05)
BY_ID = {task.record["instance_id"]: task for task in ALL}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "bike_coop.sqlite"
    build_database(path)
    return path


def dump(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory, database: Path) -> Iterator[Callable[[], Replica]]:
    with Store(tmp_path_factory.mktemp("demo-store")) as store:
        digest = store.templates.publish(database).digest
        yield lambda: store.acquire(digest)


def test_every_build_gives_the_same_rows(tmp_path: Path, database: Path) -> None:
    again = tmp_path / "again.sqlite"
    build_database(again)
    assert dump(again) == dump(database)
    with pytest.raises(FileExistsError):
        build_database(again)


def test_the_database_is_sound_and_has_a_bit_of_everything(database: Path) -> None:
    connection = sqlite3.connect(database)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        kinds = Counter(row[0] for row in connection.execute("SELECT type FROM sqlite_master"))
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = sum(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables)
    finally:
        connection.close()
    assert (kinds["table"], kinds["view"], kinds["trigger"]) == (12, 2, 1)
    assert 3_000 < rows < 10_000
    assert database.stat().st_size < 1_000_000


def test_the_tasks_are_records_as_published() -> None:
    tasks = [Task.from_record(record) for record in TASKS]
    assert len({task.instance_id for task in tasks}) == len(tasks) >= 12
    assert {task.database for task in tasks} == {DATABASE}
    assert set(Counter(task.category for task in tasks)) == {"Query", "Management", "Efficiency", "Personalization"}
    assert all(task.scorable and task.issue and task.issue_sql for task in tasks)
    assert any(not task.test_cases for task in tasks)
    assert any(task.conditions for task in tasks)
    assert any(task.clean_up_sql and task.preprocess_sql for task in tasks)


def test_the_gold_is_of_every_statement_class() -> None:
    first = Counter(" ".join(sql.split()[:2]).upper() for record in TASKS for sql in record["sol_sql"])
    for begins in ("SELECT", "WITH RECURSIVE", "INSERT", "UPDATE", "DELETE", "ALTER TABLE"):
        assert any(words.startswith(begins) for words in first), begins
    for thing in ("TABLE", "VIEW", "INDEX", "TRIGGER"):
        assert f"CREATE {thing}" in first
    assert any(len(record["sol_sql"]) > 1 for record in TASKS)


async def test_every_gold_passes_and_every_attempt_fails(database: Path) -> None:
    tasks = [Task.from_record(record) for record in TASKS]
    async with ScorerPool() as pool:
        checks = [check async for check in validate(tasks, lambda _: database, pool, workers=4)]
    assert {check.instance_id: check.causes for check in checks if check.broken} == {}
    assert Counter((check.gold, check.issue) for check in checks) == {("pass", "fail"): len(TASKS)}


async def test_wrong_and_broken_submissions_fail(database: Path) -> None:
    async with ScorerPool() as pool:
        for task in ALL:
            for solution in (list(task.wrong), [task.broken]):
                result = await pool.score(ScoringJob(task.record, solution, database))
                assert result.verdict.status == "failed", (task.record["instance_id"], solution)
                assert result.verdict.execution_error is (solution == [task.broken])


@pytest.mark.parametrize("task_id", list(BY_ID))
def test_each_action_has_the_outcome_that_the_script_expects(replicas: Callable[[], Replica], task_id: str) -> None:
    for rollout in range(len(KINDS)):
        found = script(task_id, rollout)
        replica = replicas()
        for statement in BY_ID[task_id].record["preprocess_sql"]:
            assert replica.execute(statement).outcome == "ok"
        seen = [
            Outcome.SUBMITTED if isinstance(action, Submit) else Outcome(replica.execute(action.sql, BRIEF).outcome)
            for action in found.actions
        ]
        replica.release()
        assert tuple(seen) == found.expected.outcomes, found.kind


@pytest.mark.parametrize("count", [16, 64])
def test_the_first_trajectories_are_of_every_kind(count: int) -> None:
    kinds = Counter[Any]()
    for number in range(count):
        found = script(TASKS[number % len(TASKS)]["instance_id"], number // len(TASKS))
        kinds[found.kind] += 1
        assert isinstance(found.actions[-1], Submit)
        assert all(isinstance(action, ExecuteSql) for action in found.actions[:-1])
        assert found.expected.success is (found.kind in ("right", "mended", "runaway"))
    assert set(kinds) == set(KINDS)


def test_an_unknown_task_is_an_error() -> None:
    with pytest.raises(KeyError):
        script("absent", 0)
