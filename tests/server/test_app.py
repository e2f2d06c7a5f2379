"""The application: its parts in order, and nothing left of a start that failed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI

from bird_env.errors import BirdEnvError, DataError, InternalError, LedgerFault, ScorerFault
from bird_server.app import create_app
from bird_server.clock import FakeClock
from bird_server.datadir import DataDirectory
from bird_server.engine.local import LocalEngine
from bird_server.engine.port import Engine
from bird_server.ledger.store import Ledger
from bird_server.scoring import procfs
from bird_server.scoring.pool import ScorerPool
from bird_server.settings import Settings
from bird_server.state import State
from bird_snapshots.store import Store
from bird_world import SELECT_1, populate
from server.scoring.support import entries


class Part:
    """A part that writes down when it is started and stopped, and may fail at either."""

    def __init__(self, name: str, log: list[str], fails: str = "") -> None:
        self.name, self.log, self.fails = name, log, fails

    async def start(self) -> None:
        self.log.append(f"{self.name} starts")
        if self.fails == "start":
            raise InternalError(f"{self.name} does not start")

    async def stop(self) -> None:
        self.log.append(f"{self.name} stops")
        if self.fails == "stop":
            raise InternalError(f"{self.name} does not stop")

    async def end_all_live(self, reason: Any) -> int:
        self.log.append(f"{self.name} ends what was live")
        return 0


def assembled(root: Path, log: list[str], **fails: str) -> FastAPI:
    parts = {name: Part(name, log, fails.get(name, "")) for name in ("pool", "engine", "ledger")}
    return create_app(
        Settings(data=root),
        clock=FakeClock(),
        engine=cast("Engine", parts["engine"]),
        ledger=cast("Ledger", parts["ledger"]),
        pool=cast("ScorerPool", parts["pool"]),
    )


STARTS = ["pool starts", "engine starts", "ledger starts"]


#: What can still run is ended first, so that the ledger can take its end; stopping a part again does nothing.
STOPS = ["engine stops", "pool stops", "ledger stops", "engine stops", "pool stops"]


async def test_the_scorer_starts_first_and_the_ledger_stops_when_nothing_writes_to_it_any_more(tmp_path: Path) -> None:
    log: list[str] = []
    app = assembled(tmp_path / "made", log)
    assert log == []
    assert not (tmp_path / "made").exists()
    async with app.router.lifespan_context(app):
        assert log == [*STARTS, "ledger ends what was live"]
    assert log[4:] == STOPS


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("pool", ["pool starts"]),
        ("engine", ["pool starts", "engine starts", "pool stops"]),
        ("ledger", [*STARTS, "engine stops", "pool stops"]),
    ],
)
async def test_what_started_before_a_failure_is_stopped(tmp_path: Path, part: str, expected: list[str]) -> None:
    log: list[str] = []
    app = assembled(tmp_path, log, **{part: "start"})
    with pytest.raises(InternalError, match=f"{part} does not start"):
        async with app.router.lifespan_context(app):
            pass
    assert log == expected


async def test_a_part_that_does_not_stop_keeps_none_from_stopping(tmp_path: Path) -> None:
    log: list[str] = []
    app = assembled(tmp_path, log, ledger="stop")
    with pytest.raises(InternalError, match="ledger does not stop"):
        async with app.router.lifespan_context(app):
            pass
    assert log[4:] == STOPS


def no_engine(data: Path) -> None:
    (DataDirectory(data).store).mkdir(parents=True)
    (DataDirectory(data).store / "replicas").write_text("a file where a directory should be")


def no_ledger(data: Path) -> None:
    DataDirectory(data).ledger.write_bytes(b"no ledger at all. " * 1_000)


def no_catalogue(data: Path) -> None:
    DataDirectory(data).catalogue.write_bytes(b"no catalogue at all. " * 1_000)


@pytest.mark.parametrize(
    ("spoil", "error"), [(no_engine, BirdEnvError), (no_ledger, LedgerFault), (no_catalogue, DataError)]
)
async def test_a_failed_start_leaves_no_process_and_no_lock(tmp_path: Path, spoil: Any, error: type[Exception]) -> None:
    data, scratch = tmp_path / "data", tmp_path / "scratch"
    data.mkdir()
    scratch.mkdir()
    spoil(data)
    before = procfs.children()
    app = create_app(Settings(data=data), pool=ScorerPool(children=1, scratch=scratch))
    with pytest.raises(error):
        async with app.router.lifespan_context(app):
            pass
    assert procfs.children() == before
    assert entries(scratch) == []
    if spoil is not no_engine:
        with Store(DataDirectory(data).store):  # nobody else has its lock
            pass


async def test_a_scorer_that_does_not_start_leaves_the_store_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    app = create_app(Settings(data=tmp_path / "data"), pool=ScorerPool(children=1, scratch=tmp_path))
    with pytest.raises(ScorerFault):
        async with app.router.lifespan_context(app):
            pass
    assert entries(tmp_path) == [tmp_path / "data"]
    assert entries(tmp_path / "data") == []


async def test_what_runs_when_the_server_stops_is_finished_and_answered(tmp_path: Path) -> None:
    populate(tmp_path)
    app = create_app(Settings(data=tmp_path), clock=FakeClock())
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        async with app.router.lifespan_context(app):
            await http.post("/v1/trajectories", json={"database": "shop", "trajectory_id": "t1"})
            step = {"epoch": 0, "step_index": 0, "action": SELECT_1}
            sent = asyncio.create_task(http.post("/v1/trajectories/t1/steps", json=step))
            while not len(app.state.parts.operations):
                await asyncio.to_thread(int)
        answered = await sent
        assert (answered.status_code, answered.json()["outcome"]) == (200, "ok")
        refused = await http.post("/v1/trajectories", json={"database": "shop"})
        assert (refused.status_code, refused.json()["code"]) == (503, "shutting_down")


@asynccontextmanager
async def reaping(root: Path) -> AsyncGenerator[tuple[State, httpx.AsyncClient, FakeClock]]:
    """A server whose reaper goes round all the time."""
    populate(root)
    clock = FakeClock()
    app = create_app(Settings(data=root, reap_every_s=0.001, lease_s=60), clock=clock)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http,
    ):
        yield app.state.parts, http, clock


async def test_the_reaper_ends_what_nobody_renews_and_outlives_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with reaping(tmp_path) as (state, http, clock):
        assert (await http.post("/v1/trajectories", json={"database": "shop"})).status_code == 201
        reap, rounds = state.trajectories.reap, 0

        async def fails_once() -> int:
            nonlocal rounds
            rounds += 1
            if rounds == 1:
                raise OSError("the disk is gone for a moment")
            return await reap()

        monkeypatch.setattr(state.trajectories, "reap", fails_once)
        clock.advance(61)
        with caplog.at_level(logging.CRITICAL, "bird_server"):
            while state.engine.statistics().live:
                await asyncio.to_thread(int)
        assert rounds >= 2
        assert state.trajectories.live == 0


async def test_parts_that_are_given_are_used(tmp_path: Path) -> None:
    engine = LocalEngine(tmp_path / "elsewhere", threads=1)
    app = create_app(Settings(data=tmp_path / "data"), engine=engine)
    async with app.router.lifespan_context(app):
        assert app.state.parts.engine is engine
        assert not (tmp_path / "data" / "store" / "owner.lock").exists()
    assert (tmp_path / "elsewhere" / "owner.lock").exists()
