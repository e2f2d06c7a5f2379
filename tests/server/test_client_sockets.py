"""The client over real sockets to a real server process: what a transport in this process cannot show."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from bird_env import AsyncClient, Client, Fault, Outcome, Turn, run_rollouts
from bird_env.errors import ServerUnreachable
from bird_env.testing import set_testing
from bird_env.values import Value
from bird_server.server_process import ServerProcess
from bird_world import populate

#: Burns more processor time than its client waits for.
SLOW = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp("data")
    populate(data)
    with ServerProcess(data) as running:
        yield running


def test_a_step_slower_than_its_client_waits_runs_once(server: ServerProcess) -> None:
    """The client gives up and repeats while the first request is still at work: it gets that one's reply."""
    with (
        set_testing(attempts=100),
        Client(server.url, read_timeout_s=0.2) as client,
        client.trajectory(database="shop", limits={"sql_cpu_s": 1.0}) as trajectory,
    ):
        trajectory.execute("CREATE TABLE tally(x)")
        result = trajectory.execute(f"INSERT INTO tally VALUES (1); {SLOW}")
        assert result.outcome is Outcome.TIMEOUT
        assert trajectory.execute("SELECT count(*) FROM tally").observation.values() == [(1,)]
        assert trajectory.next_step_index == 3
        assert len(list(trajectory.steps())) == 3


def test_many_threads_share_a_client(server: ServerProcess) -> None:
    with Client(server.url) as client, ThreadPoolExecutor(16) as threads:

        def rollout(number: int) -> list[tuple[Value, ...]]:
            with client.trajectory(database="shop") as trajectory:
                trajectory.execute(f"CREATE TABLE mine(x); INSERT INTO mine VALUES ({number})")
                return trajectory.execute("SELECT x FROM mine").observation.values()

        assert list(threads.map(rollout, range(48))) == [[(number,)] for number in range(48)]
        assert client.pool().live == 0


async def test_a_server_that_dies_under_rollouts_is_nobodys_wrong_answer(tmp_path: Path) -> None:
    populate(tmp_path)
    with ServerProcess(tmp_path, environment={"BIRD_ENV_MAX_STEPS": "1000000"}) as server:

        async def policy(turn: Turn) -> str:
            if turn.group_index == 0 and turn.step_index == 1:
                server.kill()
            return "SELECT 1"

        async with AsyncClient(server.url, retry_for_s=0.0) as client:
            results = await run_rollouts(client, ["read_1"], policy, group_size=3, concurrency=3)
    assert len(results) == 3
    for result in results:
        assert isinstance(result.error, ServerUnreachable)
        assert isinstance(result.error.__cause__, httpx.RequestError)
        assert result.fault is Fault.ENV
        assert result.reward is None
