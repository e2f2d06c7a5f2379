"""The service about itself: health, readiness, version and the pool."""

from __future__ import annotations

import asyncio
import platform
import sqlite3
from importlib.metadata import version as distribution_version
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from bird_env.models import Health, PoolStatus, TemplatePool, Version
from bird_server.auth import Scope, requires
from bird_server.openapi import problems
from bird_server.state import State, state_of
from bird_server.wire import reply
from bird_snapshots.versions import sqlite_version

router = APIRouter(tags=["service"])


@router.get("/healthz", response_model=Health)
async def healthz() -> Response:
    """Whether the event loop answers. Says nothing about readiness."""
    return reply(Health(status="ok"))


@router.get(
    "/readyz",
    response_model=Health,
    responses={**problems(guarded=False), 503: {"model": Health, "description": "Not now: `status` says why."}},
)
async def readyz(request: Request) -> Response:
    """Whether a trajectory could be created now: 200 `ok`, else 503 with the reason."""
    parts: State | None = getattr(request.app.state, "parts", None)
    if parts is None:
        return reply(Health(status="starting"), 503, Retry_After="1")
    if parts.operations.draining:
        return reply(Health(status="draining"), 503, Retry_After="5")
    fault = await parts.ledger.fault()
    if fault is not None:
        return reply(Health(status="degraded", detail=fault), 503, Retry_After="5")
    return reply(Health(status="ok"))


@router.get("/version", response_model=Version, responses=problems(guarded=False))
async def version() -> Response:
    """Versions that decide what SQL means here."""
    return reply(
        Version(
            version=distribution_version("bird-env"),
            python=platform.python_version(),
            engine_sqlite=sqlite_version(),
            scorer_sqlite=sqlite3.sqlite_version,
        )
    )


@router.get("/v1/pool", response_model=PoolStatus, dependencies=[Depends(requires(Scope.RUN))], responses=problems())
async def pool(state: Annotated[State, Depends(state_of)]) -> Response:
    """What the pool holds at this moment."""
    engine, admission = await asyncio.to_thread(state.engine.statistics), state.trajectories.admission
    databases = await state.library.read(lambda catalogue: catalogue.databases())
    return reply(
        PoolStatus(
            live=state.trajectories.live,
            capacity=admission.capacity,
            queued=admission.queued,
            served=engine.served,
            disk_bytes=engine.disk_bytes,
            scoring=state.scores.running,
            templates=[
                TemplatePool(
                    database=each.name,
                    sha256=each.digest,
                    size_bytes=each.size_bytes,
                    live=engine.live_by_template.get(each.digest, 0),
                    served=engine.served_by_template.get(each.digest, 0),
                )
                for each in databases
            ],
            runs=state.trajectories.live_by_run(),
        )
    )
