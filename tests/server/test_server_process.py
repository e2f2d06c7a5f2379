"""The server as a real process: how it starts, ends, and what a kill -9 in mid-run leaves."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bird_env import AsyncClient, Client
from bird_env.errors import ServerUnreachable, ServiceError, ShuttingDown
from bird_server.datadir import DataDirectory
from bird_server.scoring import procfs
from bird_server.server_process import ServerProcess
from bird_world import populate
from server.scoring.support import wait_gone


def serve(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`bird-env serve` where it is expected to refuse."""
    return subprocess.run(
        [sys.executable, "-m", "bird_env", "serve", "--port", "0", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_starts_answers_and_ends_with_exit_code_zero(tmp_path: Path) -> None:
    populate(tmp_path)
    with ServerProcess(tmp_path) as server, Client(server.url) as client:
        found = json.loads(server.ready_file.read_text())
        assert (found["url"], found["pid"]) == (server.url, server.pid)
        with client.trajectory(database="shop") as trajectory:
            assert trajectory.execute("SELECT count(*) FROM t").observation.values() == [(3,)]
        assert server.stop() == 0
        assert not server.ready_file.exists()
    assert list((DataDirectory(tmp_path).store / "replicas").iterdir()) == []


def test_localtime_is_utc_wherever_the_machine_stands(tmp_path: Path) -> None:
    populate(tmp_path)
    with (
        ServerProcess(tmp_path, environment={"TZ": "Asia/Tokyo"}) as server,
        Client(server.url) as client,
        client.trajectory(database="shop") as trajectory,
    ):
        step = trajectory.execute("SELECT datetime('2020-06-01 20:00:00', 'localtime')")
        assert step.observation.values() == [("2020-06-01 20:00:00",)]


def test_a_store_in_use_is_refused_in_one_line_that_names_the_owner(tmp_path: Path) -> None:
    populate(tmp_path)
    with ServerProcess(tmp_path) as server:
        refused = serve("--data", str(tmp_path))
        assert refused.returncode == 1
        assert str(server.pid) in refused.stderr
        assert "Traceback" not in refused.stderr


def test_listening_beyond_loopback_wants_tokens(tmp_path: Path) -> None:
    refused = serve("--data", str(tmp_path), "--host", "0.0.0.0")
    assert refused.returncode == 2
    assert "--insecure" in refused.stderr


@pytest.mark.parametrize(
    ("environment", "words"),
    [({"BIRD_ENV_CAPACITY": "none"}, "BIRD_ENV_CAPACITY"), ({"BIRD_ENV_PROMPTS": "no/such/folder"}, "no folder")],
)
def test_a_bad_setting_is_named(tmp_path: Path, environment: dict[str, str], words: str) -> None:
    refused = serve("--data", str(tmp_path), **environment)
    assert refused.returncode == 2
    assert words in refused.stderr
    assert "Traceback" not in refused.stderr


async def test_kill_9_in_mid_run_leaves_templates_as_they_were_and_the_next_server_clean(tmp_path: Path) -> None:
    template = populate(tmp_path)
    replicas = DataDirectory(tmp_path).store / "replicas"
    with ServerProcess(tmp_path) as server:
        async with AsyncClient(server.url, retry_for_s=0) as client:

            async def rollout(number: int) -> int:
                trajectory = client.trajectory(trajectory_id=f"r{number}", database="shop")
                done = 0
                try:
                    await trajectory.reset()
                    while True:
                        await trajectory.execute("UPDATE t SET b = b + 1; INSERT INTO t(a) SELECT a FROM t LIMIT 50")
                        done += 1
                except ServiceError:  # any other error is no fault of the kill, and fails the test
                    return done

            running = [asyncio.create_task(rollout(number)) for number in range(16)]
            while sum(path.stat().st_size > 0 for path in replicas.glob("*-wal")) < 16:
                await asyncio.wait(running, timeout=0.01)
            server.kill()
            done = await asyncio.gather(*running)
            assert sum(done) > 0
    assert len(list(replicas.glob("*.db"))) > 0
    assert hashlib.sha256(template.path.read_bytes()).hexdigest() == template.digest
    with ServerProcess(tmp_path) as server, Client(server.url) as after:
        assert list(replicas.iterdir()) == []
        assert after.get_trajectory("r0").end_reason == "server_restarted"
        with after.trajectory(database="shop") as fresh:
            assert fresh.execute("SELECT a, b FROM t").observation.values() == [("x", 10), ("y", 20), ("z", None)]
    assert hashlib.sha256(template.path.read_bytes()).hexdigest() == template.digest


def test_scorers_end_with_a_killed_server(tmp_path: Path) -> None:
    populate(tmp_path)
    with ServerProcess(tmp_path) as server:
        children = procfs.children(server.pid)
        assert children, "the scorer's zygote should be a child of the server"
        server.kill()
        for pid in children:
            wait_gone(pid)


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_bytes(b"no ledger at all, but text that somebody has put here. " * 200)
    with pytest.raises(ServerUnreachable, match="ledger"), ServerProcess(tmp_path):
        pass


async def test_sigterm_ends_all_that_runs_and_answers_all_who_wait(tmp_path: Path) -> None:
    populate(tmp_path)
    runaway = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r"
    environment = {"BIRD_ENV_SQL_CPU_S": "600", "BIRD_ENV_SQL_WALL_S": "600", "BIRD_ENV_CAPACITY": "2"}
    with ServerProcess(tmp_path, environment=environment) as server:
        async with AsyncClient(server.url, retry_for_s=0) as client:
            step = client.trajectory(trajectory_id="a", task_id="read_1")
            submit = client.trajectory(trajectory_id="b", task_id="read_1")
            await step.reset()
            await submit.reset()
            running = [
                asyncio.create_task(step.execute(runaway)),
                asyncio.create_task(submit.submit([runaway])),
                asyncio.create_task(client.create_trajectory(database="shop", wait_s=120)),
            ]
            while (pool := await client.pool()).scoring < 1 or pool.queued < 1:
                await asyncio.wait(running, timeout=0.01)
            assert await asyncio.to_thread(server.stop) == 0
            for ended in await asyncio.gather(*running, return_exceptions=True):
                assert isinstance(ended, ShuttingDown), ended
    with ServerProcess(tmp_path) as server, Client(server.url) as again:
        assert again.get_trajectory("a").next_step_index == 0
