"""The pool: faults that are no verdicts, places, a zygote that dies, stopping, and a service that is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bird_env.errors import ScorerFault
from bird_server.scoring import procfs
from bird_server.scoring.pool import ScorerError, ScorerPool, usable_cores
from server.scoring.support import (
    FOREVER,
    PATIENCE_S,
    entries,
    job,
    left_in,
    started_child,
    wait_gone,
    zygote_pid,
)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture
async def pool(scratch: Path) -> AsyncIterator[ScorerPool]:
    async with ScorerPool(scratch=scratch) as started:
        yield started


@pytest.mark.parametrize("content", [None, b"this is no database, whatever its name says"])
async def test_a_database_that_cannot_be_used_is_a_fault_and_no_verdict(
    pool: ScorerPool, tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "bad.sqlite"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ScorerError) as raised:
        await pool.score(job(path))
    assert raised.value.retryable


async def test_no_room_for_the_copy_is_a_fault_and_no_verdict(pool: ScorerPool, scratch: Path, database: Path) -> None:
    (root,) = entries(scratch)
    (root / "lock").unlink()
    root.rmdir()
    root.touch()
    with pytest.raises(ScorerError):
        await pool.score(job(database))
    assert pool.statistics().running == 0


async def test_more_jobs_than_children_wait_their_turn(scratch: Path, database: Path) -> None:
    async with ScorerPool(children=1, scratch=scratch) as pool:
        running = [asyncio.create_task(pool.score(job(database))) for _ in range(5)]
        await asyncio.sleep(0)
        assert pool.statistics().waiting + pool.statistics().running == 5
        assert all(result.verdict.status == "success" for result in await asyncio.gather(*running))
        statistics = pool.statistics()
    assert (statistics.running, statistics.waiting, statistics.done, statistics.zygote_restarts) == (0, 0, 5, 0)


async def test_a_dead_zygote_is_a_fault_for_what_ran_and_is_replaced(
    pool: ScorerPool, scratch: Path, database: Path
) -> None:
    zygote = zygote_pid()
    running = asyncio.create_task(pool.score(job(database, FOREVER)))
    child = await started_child(zygote)
    os.kill(zygote, signal.SIGKILL)
    with pytest.raises(ScorerFault):
        await running
    wait_gone(child)
    assert (await pool.score(job(database))).verdict.status == "success"
    assert pool.statistics().zygote_restarts == 1
    assert zygote_pid() != zygote
    assert left_in(scratch) == []


async def test_a_cancelled_scoring_is_killed_and_frees_its_place(scratch: Path, database: Path) -> None:
    async with ScorerPool(children=1, scratch=scratch) as pool:
        running = asyncio.create_task(pool.score(job(database, FOREVER)))
        child = await started_child(zygote_pid())
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (await pool.score(job(database))).verdict.status == "success"
        wait_gone(child)


async def test_stopping_ends_what_runs_and_leaves_nothing(scratch: Path, database: Path) -> None:
    pool = ScorerPool(scratch=scratch)
    await pool.start()
    await pool.start()
    zygote = zygote_pid()
    running = asyncio.create_task(pool.score(job(database, FOREVER)))
    child = await started_child(zygote)
    await pool.stop()
    await pool.stop()
    with pytest.raises(ScorerError):
        await running
    wait_gone(child)
    wait_gone(zygote)
    assert entries(scratch) == []
    with pytest.raises(ScorerError):
        await pool.score(job(database))


async def test_what_a_killed_process_left_is_removed_at_the_next_start(scratch: Path) -> None:
    stale = scratch / "bird-scorer-stale"
    stale.mkdir()
    (stale / "lock").touch()
    (stale / "copy.sqlite").touch()
    async with ScorerPool(scratch=scratch), ScorerPool(scratch=scratch):
        assert not stale.exists()
        assert len(entries(scratch)) == 2


SERVICE = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from bird_server.scoring.pool import ScorerPool
from server.scoring.support import job

async def main():
    async with ScorerPool(children=1, scratch=Path(sys.argv[2])) as pool:
        print("ready", flush=True)
        await pool.score(job(Path(sys.argv[1]), "while True: pass"))

asyncio.run(main())
"""


@contextmanager
def running_service(database: Path, scratch: Path) -> Generator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", SERVICE, str(database), str(scratch), str(Path(__file__).parents[2])]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as service:
        assert service.stdout is not None
        assert service.stdout.readline() == b"ready\n"
        yield service


async def test_everything_dies_with_a_service_that_is_killed(scratch: Path, database: Path) -> None:
    with running_service(database, scratch) as service:
        (zygote,) = procfs.children(service.pid)
        child = await started_child(zygote)
        service.kill()
    wait_gone(zygote)
    wait_gone(child)
    assert entries(scratch) == []


def test_a_pool_serves_a_loop_in_another_thread(scratch: Path, database: Path) -> None:
    status: list[str] = []

    async def score() -> None:
        async with ScorerPool(scratch=scratch) as pool:
            status.append((await pool.score(job(database))).verdict.status)

    thread = threading.Thread(target=lambda: asyncio.run(score()))
    thread.start()
    thread.join(PATIENCE_S)
    assert status == ["success"]


def test_a_pool_serves_under_uvloop(scratch: Path, database: Path) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def score() -> str:
        async with ScorerPool(scratch=scratch) as pool:
            return (await pool.score(job(database))).verdict.status

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(score()) == "success"


async def test_a_result_names_the_versions_that_judged(pool: ScorerPool, database: Path) -> None:
    result = await pool.score(job(database))
    assert result.versions == pool.versions
    assert set(result.versions) == {"python", "sqlite"}


async def test_a_zygote_that_does_not_start_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = ScorerPool(scratch=tmp_path)
    for program in ("/bin/false", str(tmp_path / "no such program")):
        monkeypatch.setattr(sys, "executable", program)
        with pytest.raises(ScorerError):
            await pool.start()
        assert entries(tmp_path) == []
    monkeypatch.undo()
    await pool.start()
    await pool.stop()
    assert entries(tmp_path) == []


def test_a_pool_needs_a_child() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ScorerPool(children=0)
    assert usable_cores() >= 1
