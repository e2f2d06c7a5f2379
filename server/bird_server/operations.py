"""What the service is doing for its clients: work that outlives the request that asked for it.

Each operation is a task of its own. A client that hangs up stops waiting and cancels nothing. When the server ends,
those who still wait are answered `shutting_down` before the HTTP server would cut them off without a word; what they
waited for was not acknowledged, and may be asked for again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from bird_env.errors import BirdEnvError, ShuttingDown

log = logging.getLogger("bird_server.operations")

T = TypeVar("T")


class Operations:
    """Runs operations and counts them. Used from the event loop only."""

    def __init__(self) -> None:
        self._running: dict[asyncio.Task[Any], asyncio.Future[Any]] = {}
        self.draining = False

    def __len__(self) -> int:
        return len(self._running)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end whatever becomes of the caller, and give its result to the caller that still waits."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(work)
        self._running[task] = answer
        task.add_done_callback(self._done)
        return await answer

    def answer_all(self) -> int:
        """Tell everybody who still waits that the server is shutting down; returns how many were told."""
        waiting = [answer for answer in self._running.values() if not answer.done()]
        for answer in waiting:
            answer.set_exception(ShuttingDown())
        return len(waiting)

    async def settle(self, within_s: float | None = None) -> int:
        """Let what runs finish; returns how many operations still run after `within_s` (None: wait for all)."""
        if self._running:
            await asyncio.wait(list(self._running), timeout=within_s)
        return len(self._running)

    def _done(self, task: asyncio.Task[Any]) -> None:
        answer = self._running.pop(task)
        if task.cancelled():
            answer.cancel()
            return
        error = task.exception()
        if error is not None and not isinstance(error, BirdEnvError):
            log.error("an operation failed", exc_info=error)
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(task.result())
