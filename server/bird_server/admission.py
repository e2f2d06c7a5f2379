"""Places for live trajectories: a fixed number, and a bounded queue in order of arrival for those that must wait.

Whoever waits has a name, so that what it waits for can be called off. A place is taken before a replica is made and
given back when the trajectory ends, by then its replica is gone. Waiting never counts against a policy: no clock of a
step runs yet.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable

from bird_env.errors import BirdEnvError, Overloaded, ShuttingDown

#: What a refused client is told when nothing better is known: about one lease renewal of a busy trainer.
RETRY_AFTER_S = 2.0


class Admission:
    """Counts places; not safe for threads, used from the event loop only."""

    def __init__(self, capacity: int, queue_limit: int) -> None:
        self.capacity = capacity
        self.queue_limit = queue_limit
        self.taken = 0
        self._waiting: deque[tuple[Hashable, asyncio.Future[None]]] = deque()
        self._closed = False

    @property
    def queued(self) -> int:
        return len(self._waiting)

    async def take(self, wait_s: float, name: Hashable = None) -> None:
        """Take a place, waiting at most `wait_s` seconds for one.

        Raises:
            Overloaded: None became free in time, or too many wait already.
            ShuttingDown: The server is ending.
            BirdEnvError: Whatever `call_off` was given for this name.
        """
        if self._closed:
            raise ShuttingDown()
        if self.taken < self.capacity and not self._waiting:
            self.taken += 1
            return
        if wait_s <= 0 or len(self._waiting) >= self.queue_limit:
            raise Overloaded(f"All {self.capacity} places are taken.", retry_after_s=RETRY_AFTER_S)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((name, turn))
        try:
            async with asyncio.timeout(wait_s):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give_back()  # the place came in the same moment as the end of the wait
            elif (name, turn) in self._waiting:
                self._waiting.remove((name, turn))
            if isinstance(error, TimeoutError):
                raise Overloaded(
                    f"All {self.capacity} places stayed taken for {wait_s:g} s.", retry_after_s=RETRY_AFTER_S
                ) from None
            raise

    def call_off(self, name: Hashable, error: BirdEnvError) -> None:
        """Let every wait under this name end with an error."""
        for waiting, turn in self._waiting:
            if waiting == name and not turn.done():
                turn.set_exception(error)

    def close(self) -> None:
        """Refuse newcomers and those who wait: the server is ending."""
        self._closed = True
        for _, turn in self._waiting:
            if not turn.done():
                turn.set_exception(ShuttingDown())

    def give_back(self) -> None:
        """Free a place; the first in the queue gets it at once, so that no newcomer can overtake."""
        while self._waiting:
            _, turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.taken -= 1
