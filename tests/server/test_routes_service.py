"""The service about itself: alive, ready, which versions, and what the pool holds."""

from __future__ import annotations

import asyncio
import platform
import sqlite3
from pathlib import Path

import apsw
import httpx
import pytest

from bird_env.errors import LedgerFault
from bird_env.models import Health, PoolStatus, Version
from bird_server.app import create_app
from bird_server.settings import Settings
from bird_world import World, problem, serving


async def ready(world: World) -> tuple[int, Health, str | None]:
    response = await world.http.get("/readyz")
    return response.status_code, Health.model_validate(response.json()), response.headers.get("retry-after")


async def test_before_the_start_it_is_alive_and_starting(tmp_path: Path) -> None:
    app = create_app(Settings(data=tmp_path))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
        assert (await http.get("/healthz")).json()["status"] == "ok"
        starting = await http.get("/readyz")
        assert (starting.status_code, starting.json()["status"]) == (503, "starting")
        assert starting.headers["retry-after"] == "1"


async def test_ready_draining_and_degraded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await ready(world) == (200, Health(status="ok"), None)
    world.state.operations.draining = True
    assert await ready(world) == (503, Health(status="draining"), "5")
    world.state.operations.draining = False

    async def unreadable() -> int:
        raise LedgerFault("The ledger could not be read: OperationalError.")

    monkeypatch.setattr(world.state.ledger, "count_live", unreadable)
    status, health, _ = await ready(world)
    assert (status, health.status) == (503, "degraded")
    assert health.detail == "The ledger could not be read: OperationalError."
    monkeypatch.undo()
    await world.state.ledger.stop()
    assert (await ready(world))[1].detail == "the ledger's writer is not running"
    assert (await world.http.get("/healthz")).status_code == 200


async def test_versions_are_those_of_the_libraries(world: World) -> None:
    version = Version.model_validate((await world.http.get("/version")).json())
    assert (version.python, version.scorer_sqlite) == (platform.python_version(), sqlite3.sqlite_version)
    assert (version.engine_sqlite, version.api) == (apsw.sqlite_lib_version(), "v1")


async def pool(world: World) -> PoolStatus:
    return PoolStatus.model_validate((await world.http.get("/v1/pool")).json())


async def test_an_empty_pool(world: World) -> None:
    found = await pool(world)
    assert (found.live, found.capacity, found.queued, found.served, found.disk_bytes, found.scoring) == (
        0,
        4,
        0,
        0,
        0,
        0,
    )
    (template,) = found.templates
    assert (template.database, template.sha256, template.live) == ("shop", world.template.digest, 0)
    assert template.size_bytes == world.template.path.stat().st_size
    assert found.runs == {}


async def test_the_pool_follows_trajectories_runs_and_what_they_write(world: World) -> None:
    for name, run in (("a", "r1"), ("b", "r1"), ("c", "r2"), ("d", None)):
        await world.create(name, run_id=run)
    await world.sql("INSERT INTO t(a) SELECT hex(zeroblob(2000)) FROM t", "a")
    waiting = asyncio.create_task(world.post("/v1/trajectories", {"database": "shop"}, Prefer="wait=100"))
    while not world.state.trajectories.admission.queued:
        await asyncio.to_thread(int)
    found = await pool(world)
    assert (found.live, found.queued, found.served) == (4, 1, 4)
    assert found.runs == {"r1": 2, "r2": 1}
    assert found.disk_bytes > 10_000
    await world.http.delete("/v1/trajectories/a")
    assert (await waiting).status_code == 201
    after = await pool(world)
    assert (after.live, after.queued, after.served, after.disk_bytes) == (4, 0, 5, 0)
    assert (after.templates[0].live, after.templates[0].served) == (4, 5)
    assert after.runs == {"r1": 1, "r2": 1}


async def test_only_the_pool_asks_for_a_token(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", run_token="secret") as world:
        for path in ("/healthz", "/readyz", "/version", "/openapi.json"):
            assert (await world.http.get(path)).status_code == 200, path
        problem(await world.http.get("/v1/pool"), 401, "unauthorized")
        for headers in ({"Authorization": "bearer  secret "}, {"X-API-Key": "secret"}):
            assert (await world.http.get("/v1/pool", headers=headers)).status_code == 200
