"""The application: its parts wired together, started and stopped in order.

`create_app(settings)` builds everything without touching disk; the lifespan opens it: scorer first (it starts a
process, which must happen before threads and replicas exist), then the engine, then the ledger. Parts can be given,
for tests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI

from bird_env.models import EndReason
from bird_server import problems
from bird_server.auth import Authenticator
from bird_server.catalogue import Catalogue
from bird_server.clock import Clock, SystemClock
from bird_server.datadir import DataDirectory
from bird_server.engine.local import LocalEngine
from bird_server.engine.port import Engine
from bird_server.idempotency import StoredReplies
from bird_server.ledger.store import Ledger, sqlite_url
from bird_server.library import Library
from bird_server.middleware import RequestContext
from bird_server.openapi import describe
from bird_server.operations import Operations
from bird_server.prompts import Prompts
from bird_server.routes import library, scores, service, trajectories
from bird_server.scores import Scores
from bird_server.scoring.pool import ScorerPool
from bird_server.settings import MEGABYTE, Settings
from bird_server.state import State
from bird_server.trajectories import Trajectories
from bird_snapshots.template import TemplateStore

log = logging.getLogger("bird_server")

#: Seconds that running operations have to finish at the end, after the HTTP server's own grace.
DRAIN_S = 1.0

DESCRIPTION = """
A private, writable, copy-on-write SQLite database for every RL trajectory, scored as BIRD-CRITIC scores.

A policy's SQL that fails is an observation under status 200; every other failure is `application/problem+json` with a
`code`, whether it is `retryable`, and a hint. A step is named by (trajectory, epoch, step_index): sent again, it is
answered again and not run again.
"""


def create_app(
    settings: Settings,
    *,
    clock: Clock | None = None,
    engine: Engine | None = None,
    ledger: Ledger | None = None,
    pool: ScorerPool | None = None,
) -> FastAPI:
    """The service as an ASGI application."""
    used_clock = clock or SystemClock()
    prompts = Prompts(settings.prompts)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            directory = DataDirectory(settings.data)
            await asyncio.to_thread(directory.root.mkdir, parents=True, exist_ok=True)
            scorer = pool or ScorerPool(children=settings.scorers or None)
            await scorer.start()
            stack.push_async_callback(scorer.stop)
            used_engine = engine or LocalEngine(
                directory.store,
                threads=settings.sql_threads,
                heap_bytes=int(settings.sql_memory_mb * MEGABYTE) or None,
                like_scorer=settings.engine_functions == "scorer",
            )
            await used_engine.start()
            stack.push_async_callback(used_engine.stop)
            used_ledger = ledger or Ledger(settings.ledger_url or sqlite_url(directory.ledger), used_clock)
            await used_ledger.start()
            stack.push_async_callback(used_ledger.stop)
            lost = await used_ledger.end_all_live(EndReason.SERVER_RESTARTED)
            if lost:
                log.warning("%d trajectories of an earlier process were ended: server_restarted", lost)
            catalogue = Catalogue(directory.root)
            stack.callback(catalogue.close)
            shelves = Library(catalogue, used_engine, used_clock)
            used_scores = Scores(shelves, TemplateStore(directory.store), scorer, limit_s=settings.score_limit_s)
            operations = Operations()
            all_trajectories = Trajectories(
                settings=settings,
                clock=used_clock,
                engine=used_engine,
                ledger=used_ledger,
                library=shelves,
                scores=used_scores,
                prompts=prompts,
                operations=operations,
            )
            reaper = asyncio.create_task(_reap(all_trajectories, settings.reap_every_s), name="reaper")

            async def finish() -> None:
                """What still runs after the grace is ended with its engine or scorer: it was never acknowledged."""
                await _cancel(reaper)
                parts.close()
                left = await operations.settle(DRAIN_S)
                if left:
                    log.warning("%d operations did not finish in time and are ended", left)
                await used_engine.stop()
                await scorer.stop()
                await operations.settle()

            stack.push_async_callback(finish)
            parts = State(
                settings=settings,
                clock=used_clock,
                library=shelves,
                engine=used_engine,
                ledger=used_ledger,
                scores=used_scores,
                trajectories=all_trajectories,
                replies=StoredReplies(used_ledger, used_clock),
                operations=operations,
            )
            app.state.parts = parts
            yield

    app = FastAPI(
        title="bird_env",
        version=version("bird-env"),
        description=DESCRIPTION,
        lifespan=lifespan,
        redoc_url=None,
        redirect_slashes=False,  # a redirect would be built from the client's Host header
    )
    app.state.authenticator = Authenticator(settings)
    problems.install(app)
    app.add_middleware(RequestContext, max_body_bytes=settings.max_body_bytes)
    for room in (trajectories, scores, library, service):
        app.include_router(room.router)
    describe(app)
    return app


async def _reap(all_trajectories: Trajectories, every_s: float) -> None:
    """Ends expired trajectories for as long as the server runs; a failed round is logged and the next one comes."""
    while True:
        await asyncio.sleep(every_s)
        try:
            await all_trajectories.reap()
        except Exception:  # the reaper must outlive any fault, or leases would never end again
            log.exception("a round of the reaper failed")


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
