"""The gate before the cores: of many statements that compute for long, as many run as there are cores; the others park.

Why: statements that all run at once on too few cores each need a multiple of their processor time on the wall. Eight
of 30 s on two cores end all at their wall limit of 120 s, as starved, although none was kept from anything but each
other; and short ones wait behind them. A call that has used `after_s` of processor time is long: at its next look
(see `meter`) it asks here and runs only inside. Whoever has had a turn of `slice_s` goes to the end of the queue, so
that a statement of a second does not wait for those of a minute. Time spent waiting counts against nobody.

What never looks cannot park: see `watchdog`.
"""

from __future__ import annotations

import threading
from collections import deque

from bird_snapshots.machine import usable_cores


class Visit:
    """One long call at the gate: inside, in the queue, or let go."""

    __slots__ = ("_turn", "dismissed", "inside", "turn_ends_s")

    def __init__(self) -> None:
        self.inside = False
        self.dismissed = False
        self.turn_ends_s = 0.0
        self._turn = threading.Event()

    def call(self) -> None:
        self._turn.set()

    def queue(self) -> None:
        self._turn.clear()

    def wait(self) -> None:
        self._turn.wait()


class Gate:
    """Turns for long calls. Thread-safe.

    Args:
        slots: Long calls that run at once; as many as there are usable cores where left out.
        after_s: Processor seconds of one call from which it is long.
        slice_s: Processor seconds of one turn, while others wait.
    """

    def __init__(self, slots: int | None = None, *, after_s: float = 0.25, slice_s: float = 0.5) -> None:
        self.after_s = after_s
        self._slice_s = slice_s
        self._free = usable_cores() if slots is None else slots
        self._queue: deque[Visit] = deque()
        self._guard = threading.Lock()

    @property
    def waiting(self) -> int:
        """Calls in the queue."""
        return len(self._queue)

    def ask(self, visit: Visit, cpu_s: float) -> bool:
        """Whether a call that has used so much may go on; if not, it is in the queue and has to `wait`."""
        if visit.inside and cpu_s < visit.turn_ends_s:
            return True
        with self._guard:
            if visit.dismissed:
                return True
            visit.turn_ends_s = cpu_s + self._slice_s
            if visit.inside:
                if not self._queue:
                    return True
                visit.inside = False
                self._admit_next()
            elif self._free > 0:
                self._free -= 1
                visit.inside = True
                return True
            visit.queue()
            self._queue.append(visit)
            return False

    def wait(self, visit: Visit) -> None:
        """Park until it is the call's turn, or until it is dismissed."""
        visit.wait()

    def leave(self, visit: Visit) -> None:
        """The call is over."""
        with self._guard:
            self._take_out(visit)

    def dismiss(self, visit: Visit) -> None:
        """Wake the call and never make it wait again: it is to end."""
        with self._guard:
            visit.dismissed = True
            self._take_out(visit)
            visit.call()

    def _take_out(self, visit: Visit) -> None:
        if visit.inside:
            visit.inside = False
            self._admit_next()
        elif visit in self._queue:
            self._queue.remove(visit)

    def _admit_next(self) -> None:
        if self._queue:
            following = self._queue.popleft()
            following.inside = True
            following.call()
        else:
            self._free += 1
