"""The room of a scoring: its excess is its own failure, a full machine is not."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bird_server.scoring import footprint
from bird_server.scoring.job import failure_verdict
from bird_server.scoring.pool import Means, ScorerPool
from server.scoring.support import FOREVER, job, left_in

MEGABYTE = 1 << 20


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprint, "ALLOWANCE_BYTES", 8 * MEGABYTE)


@pytest.fixture(params=["namespaces", "landlock"])
async def watched(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ScorerPool]:
    """Private directories on a disk that others share."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    without: frozenset[Means] = frozenset() if request.param == "namespaces" else frozenset({"namespaces"})
    async with ScorerPool(scratch=folder, without=without) as pool:
        yield pool


@pytest.mark.parametrize(
    "body",
    [
        "for n in range(3): open(str(n), 'wb').write(bytes(4 << 20))",
        f"for n in range(3): open(str(n), 'wb').write(bytes(4 << 20))\n{FOREVER}",
        f"for n in range(3000): open(str(n), 'wb')\n{FOREVER}",
        f"""
        import os
        files = [open(str(n), "wb", buffering=0) for n in range(3)]
        for n, file in enumerate(files):
            os.unlink(str(n))
            file.write(bytes(4 << 20))
        {FOREVER}
        """,
    ],
)
async def test_a_scoring_that_writes_too_much_has_failed(
    watched: ScorerPool, tmp_path: Path, database: Path, body: str
) -> None:
    asked = job(database, body)
    result = await watched.score(asked)
    assert (result.verdict, result.ended) == (failure_verdict(asked.record), "died")
    assert "more than a scoring may" in result.detail["cause"]
    assert left_in(tmp_path / "scratch") == []


async def test_a_scoring_within_its_room_is_left_alone(watched: ScorerPool, database: Path) -> None:
    result = await watched.score(job(database, "open('x', 'wb').write(bytes(6 << 20))"))
    assert result.verdict.status == "success", result.detail


@pytest.mark.parametrize(
    "pred",
    [
        ["CREATE TABLE big AS SELECT zeroblob(6000000) AS x", "INSERT INTO big SELECT x FROM big"],
        [f"ATTACH '/dev/shm/{n}' AS z{n}; CREATE TABLE z{n}.b AS SELECT zeroblob(5000000)" for n in range(3)],
    ],
)
async def test_sql_that_writes_too_much_fails_by_its_own_error(database: Path, pred: list[str]) -> None:
    async with ScorerPool() as pool:
        result = await pool.score(job(database, pred="; ".join(pred).split("; ")))
        assert result.verdict.execution_error
        assert (await pool.score(job(database))).verdict.status == "success"


def test_files_below_and_files_without_a_name_count(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b").write_bytes(bytes(MEGABYTE))
    assert footprint.exceeds(str(tmp_path), None, MEGABYTE - 1)
    assert not footprint.exceeds(str(tmp_path), os.getpid(), 2 * MEGABYTE)
    with (tmp_path / "c").open("wb", buffering=0) as nameless:
        (tmp_path / "c").unlink()
        nameless.write(bytes(2 * MEGABYTE))
        assert not footprint.exceeds(str(tmp_path), None, 2 * MEGABYTE)
        assert footprint.exceeds(str(tmp_path), os.getpid(), 2 * MEGABYTE)
    assert not footprint.exceeds(str(tmp_path / "nowhere"), None, 0)


def test_a_larger_database_has_more_room() -> None:
    assert footprint.allowed_bytes(MEGABYTE) - footprint.allowed_bytes(0) == 6 * MEGABYTE


def test_memory_and_disk_are_told_apart() -> None:
    assert not footprint.in_memory("/proc")
    assert not footprint.in_memory("/no such place")
