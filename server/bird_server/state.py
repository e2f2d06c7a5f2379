"""What the routes of one server share, put together by `app.create_app`."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from bird_server.clock import Clock
from bird_server.engine.port import Engine
from bird_server.idempotency import StoredReplies
from bird_server.ledger.store import Ledger
from bird_server.library import Library
from bird_server.operations import Operations
from bird_server.scores import Scores
from bird_server.settings import Settings
from bird_server.trajectories import Trajectories


@dataclass(frozen=True, slots=True)
class State:
    settings: Settings
    clock: Clock
    library: Library
    engine: Engine
    ledger: Ledger
    scores: Scores
    trajectories: Trajectories
    replies: StoredReplies
    operations: Operations

    def close(self) -> None:
        """The server is ending: nothing new is begun, what runs may finish."""
        self.operations.draining = True
        self.trajectories.close()


async def state_of(request: Request) -> State:
    """Route dependency: the server's parts, there once it has started. A coroutine, so that it takes no thread."""
    state: State = request.app.state.parts
    return state
