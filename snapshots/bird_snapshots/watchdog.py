"""The watch over statements that SQLite does not look at: a thread that reads the clocks of those that run.

SQLite asks the meter every so many steps of its machine; a step such as `instr()` over a megabyte takes a second, so
that 20,000 of them would take hours. This thread asks in SQLite's place, five times a second, and interrupts the
connection: SQLite heeds that at its next jump, once a row. What it cannot end is one row that takes long by itself.

The thread starts with the first call, sleeps when nothing has run for some seconds, and ends at `close`.
"""

from __future__ import annotations

import threading
from typing import Protocol

#: Looks at nothing before it sleeps: to wake it costs the call that does a tenth of a millisecond.
_IDLE_LOOKS = 25


class Watched(Protocol):
    """A call that runs."""

    def watch(self) -> None:
        """Look at the clocks and interrupt what is late. Called on the watchdog's thread."""
        ...


class Watchdog:
    """Looks at every running call from time to time. Thread-safe.

    Args:
        every_s: Seconds between two looks.
    """

    def __init__(self, every_s: float = 0.2) -> None:
        self._every_s = every_s
        self._running: set[Watched] = set()
        self._thread: threading.Thread | None = None
        self._asleep = True
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._guard = threading.Lock()

    def add(self, call: Watched) -> None:
        """A call begins. One set operation unless the thread sleeps: calls are short and many."""
        self._running.add(call)
        if self._asleep:
            self._rouse()

    def discard(self, call: Watched) -> None:
        """A call is over."""
        self._running.discard(call)

    def look(self) -> None:
        """Look at every running call once."""
        for call in list(self._running):
            call.watch()

    def close(self) -> None:
        """End the thread. Calls that still run are watched no more."""
        with self._guard:
            thread, self._thread = self._thread, None
            self._ended.set()
            self._wake.set()
        if thread is not None:
            thread.join()

    def _rouse(self) -> None:
        with self._guard:
            if self._ended.is_set():
                return
            self._asleep = False
            self._wake.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="sql-watchdog", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        idle = 0
        while not self._ended.wait(self._every_s):
            self.look()
            idle = 0 if self._running else idle + 1
            if idle > _IDLE_LOOKS:
                idle = 0
                self._wake.clear()
                self._asleep = True
                if not self._running and not self._ended.is_set():  # whoever comes from here on sees it asleep
                    self._wake.wait()
