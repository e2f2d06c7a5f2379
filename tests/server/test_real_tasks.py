"""The ninety real tasks through the service: explore, submit gold, score; and gold and issue without a trajectory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from bird_env import AsyncClient
from bird_env.tasks import Task, read_tasks
from bird_server.catalogue import Catalogue
from bird_server.database_files import find_databases
from bird_server.datadir import DataDirectory
from bird_server.importing import import_databases
from bird_server.server_process import ServerProcess
from bird_snapshots.template import TemplateStore

CONCURRENCY = 16


@pytest.fixture(scope="module")
def tasks(shared: Path) -> list[Task]:
    return list(read_tasks(shared / "data" / "tasks" / "six_gym_sqlite_90.jsonl").tasks)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, shared: Path, tasks: list[Task]) -> Iterator[str]:
    root = tmp_path_factory.mktemp("real")
    templates = TemplateStore(DataDirectory(root).store)
    with Catalogue(root) as catalogue:
        outcomes = list(import_databases(find_databases(shared / "data" / "databases").files, catalogue, templates))
        assert len(outcomes) == 3
        catalogue.add_tasks(tasks, source="shared")
    with ServerProcess(root) as server:
        yield server.url
    for template in templates.list():
        templates.verify(template.digest)


async def test_every_task_as_a_trajectory(url: str, tasks: list[Task]) -> None:
    gate = asyncio.Semaphore(CONCURRENCY)

    async def rollout(client: AsyncClient, task: Task) -> float | None:
        async with gate, client.trajectory(task_id=task.instance_id) as trajectory:
            explored = await trajectory.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'")
            assert explored.outcome == "ok"
            assert explored.observation.rows_seen > 3
            for statement in task.issue_sql:
                await trajectory.execute(statement)
            done = await trajectory.submit(list(task.sol_sql))
            assert done.terminated
            return done.reward

    async with AsyncClient(url) as client:
        rewards = await asyncio.gather(*(rollout(client, task) for task in tasks))
    assert len(rewards) == 90
    assert [task.instance_id for task, reward in zip(tasks, rewards, strict=True) if reward != 1.0] == []


async def test_gold_passes_and_issue_fails_without_a_trajectory(url: str, tasks: list[Task]) -> None:
    gate = asyncio.Semaphore(CONCURRENCY)

    async def score(client: AsyncClient, task: Task) -> tuple[float | None, float | None]:
        async with gate:
            gold = await client.score(task.instance_id, list(task.sol_sql))
            issue = await client.score(task.instance_id, list(task.issue_sql))
            return gold.reward, issue.reward

    async with AsyncClient(url) as client:
        rewards = await asyncio.gather(*(score(client, task) for task in tasks))
    assert rewards.count((1.0, 0.0)) == 90
