"""The watch over one replica's executions: processor time, wall time, the WAL's growth, temporary bytes.

SQLite calls `check` every so many steps of its virtual machine, on the thread that executes; True makes it give up and
undo the statement. The same is asked between statements, and while large rows are read. `stopped` then says why.
A call that has computed for long may have to park there (see `gate`); that time is not part of its wall time. Where
SQLite does not look for long, another thread reads the same clocks through `watch` (see `watchdog`).

Why the WAL is not simply measured: it never shrinks, so that after an undone statement the file is longer than what is
committed in it, and the next one writes over that tail. The quota is passed when the frame that would be the last one
within it is written: where an old tail reaches further, its header there is remembered and compared.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import apsw

from bird_snapshots.connect import Opened
from bird_snapshots.format import FRAME_HEADER_BYTES, WAL_HEADER_BYTES, frame_offset
from bird_snapshots.gate import Gate, Visit
from bird_snapshots.limits import DEFAULT_LIMITS, Limits
from bird_snapshots.vfs import TemporaryFiles
from bird_snapshots.watchdog import Watchdog


class Stop(StrEnum):
    """Why a statement was ended from outside."""

    CPU = "cpu"
    WALL = "wall"
    WAL = "wal"
    TEMPORARY = "temporary"
    MEMORY = "memory"
    CLOSED = "closed"


def _observer() -> Callable[[], tuple[float, float]]:
    clock = time.pthread_getcpuclockid(threading.get_ident())
    return lambda: (time.clock_gettime(clock), time.monotonic())


@dataclass(frozen=True, slots=True)
class Clock:
    """Seconds that this thread has computed, and seconds on the wall. Both only grow.

    Attributes:
        observer: Gives the calling thread's two readings to any other thread, for as long as this one lives.
    """

    thread_time: Callable[[], float] = time.thread_time
    monotonic: Callable[[], float] = time.monotonic
    observer: Callable[[], Callable[[], tuple[float, float]]] = _observer


SYSTEM_CLOCK = Clock()

#: What SQLite keeps of the main database, TEMP objects and journals; more in memory is an attached database.
_USUAL_CACHE_BYTES = 8_000_000

#: What a replica's attached databases may take of the memory that all replicas share: they stay between its calls.
MEMORY_BYTES = 128_000_000


class Meter:
    """One replica's limits and what it has used of them."""

    def __init__(
        self,
        wal: Path,
        temporary: TemporaryFiles,
        clock: Clock,
        *,
        gate: Gate,
        watchdog: Watchdog,
        committed_bytes: Callable[[], int],
        free_bytes: Callable[[], int],
    ) -> None:
        self.committed_bytes = committed_bytes
        self.free_bytes = free_bytes
        self.temporary = temporary
        self.clock = clock
        self.limits: Limits = DEFAULT_LIMITS
        self.stopped: Stop | None = None
        self.closing = False
        self.page_size = 0
        self._wal = wal
        self._opened: Opened | None = None
        self._gate, self._watchdog = gate, watchdog
        self._visit: Visit | None = None
        self._on_long: Callable[[], None] | None = None
        self._cpu_start = self._wall_start = 0.0
        self._parked_at: float | None = None
        self._observe = clock.observer
        self._readings: Callable[[], tuple[float, float]] = lambda: (0.0, 0.0)
        self._running = False
        self._guard = threading.Lock()  # between the call's end and an interrupt from another thread
        self.parked_s = 0.0
        self._tail = b""  # header that an older, longer WAL left where the quota ends
        self._tail_end = 0

    def attach(self, opened: Opened) -> None:
        self._opened, self.page_size = opened, opened.page_size

    def start(self, limits: Limits, on_long: Callable[[], None] | None = None) -> None:
        """A call begins: its clocks start now. `on_long` is called once if it becomes a long one."""
        self.limits, self.stopped, self._on_long = limits, None, on_long
        self.parked_s, self._parked_at, self._visit = 0.0, None, None
        self._readings = self._observe()
        self._cpu_start, self._wall_start = self.clock.thread_time(), self.clock.monotonic()
        self._running = True
        self._watchdog.add(self)

    def finish(self) -> None:
        """The call is over: what the engine itself runs is not limited."""
        with self._guard:
            self._running = False
        self._watchdog.discard(self)
        if self._visit is not None:
            self._gate.leave(self._visit)

    def close(self) -> None:
        """End the call that is running, and any later one at its first look. Called on any thread."""
        self.closing = True
        visit = self._visit
        if visit is not None:
            self._gate.dismiss(visit)
        self.watch()

    def watch(self) -> None:
        """Interrupt a call that is late. Called on any thread; again as long as SQLite has not heeded it."""
        with self._guard:
            if not self._running or self._opened is None:
                return
            if self.stopped is None:
                self.stopped = self._late()
            if self.stopped is not None:
                self._opened.connection.interrupt()

    def _late(self) -> Stop | None:
        if self.closing:
            return Stop.CLOSED
        if self._parked_at is not None:
            return None
        cpu, wall = self._readings()
        if cpu - self._cpu_start > self.limits.cpu_s:
            return Stop.CPU
        return Stop.WALL if wall - self._wall_start - self.parked_s > self.limits.wall_s else None

    @property
    def running(self) -> bool:
        """Whether a call is being executed."""
        return self._running

    @property
    def cpu_s(self) -> float:
        return self.clock.thread_time() - self._cpu_start

    @property
    def wall_s(self) -> float:
        """Seconds since the call began, but for those that it was parked."""
        return self.clock.monotonic() - self._wall_start - self.parked_s

    def begin_statement(self) -> None:
        """Look at what earlier, undone statements left at the end of the WAL."""
        end = self._quota_end()
        size = self.wal_file_bytes()
        self._tail_end = max(end, size)
        self._tail = self._header_at_quota() if size > end else b""

    def check(self) -> bool:
        """Whether the statement must end now. A call that has computed for long may wait here for its turn."""
        if not self._running:
            return False
        if self.stopped is None:
            found = self._look()
            if found is not None:  # else another thread's word stays
                self.stopped = found
        return self.stopped is not None

    def _look(self) -> Stop | None:
        if self.closing:
            return Stop.CLOSED
        cpu = self.cpu_s
        if cpu > self.limits.cpu_s:
            return Stop.CPU
        if self.wall_s > self.limits.wall_s:
            return Stop.WALL
        if self.over_wal_quota():
            return Stop.WAL
        in_memory = self._memory_bytes()
        if self.temporary.bytes() + in_memory > self.limits.temp_bytes:
            return Stop.TEMPORARY
        if in_memory > MEMORY_BYTES:
            return Stop.MEMORY
        if cpu > self._gate.after_s:
            return self._take_turn(cpu)
        return None

    def _take_turn(self, cpu_s: float) -> Stop | None:
        visit = self._visit
        if visit is None:
            visit = self._visit = Visit()
            if self._on_long is not None:
                self._on_long()
        if self.closing:  # asked after the visit is there to be dismissed: `close` does it the other way round
            return Stop.CLOSED
        if not self._gate.ask(visit, cpu_s):
            start = self._parked_at = self.clock.monotonic()
            self._gate.wait(visit)
            self.parked_s += self.clock.monotonic() - start
            self._parked_at = None
        return Stop.CLOSED if self.closing else None

    def wal_file_bytes(self) -> int:
        try:
            return self._wal.stat().st_size
        except FileNotFoundError:
            return 0

    def over_wal_quota(self) -> bool:
        """Whether the statement has written beyond the quota of its replica."""
        size = self.wal_file_bytes()
        if size <= self._quota_end():
            return False
        return size > self._tail_end or self._header_at_quota() != self._tail

    def committed_over_quota(self) -> bool:
        """Whether what is committed has reached the quota: nothing more may be written."""
        return self.committed_bytes() >= self._quota_end()

    def _memory_bytes(self) -> int:
        if self._opened is None:
            return 0
        cached = self._opened.connection.status(apsw.SQLITE_DBSTATUS_CACHE_USED)[0]
        return max(0, cached - _USUAL_CACHE_BYTES)

    def _frames_within_quota(self) -> int:
        return max(0, self.limits.wal_bytes - WAL_HEADER_BYTES) // (FRAME_HEADER_BYTES + self.page_size)

    def _quota_end(self) -> int:
        return frame_offset(self._frames_within_quota() + 1, self.page_size)

    def _header_at_quota(self) -> bytes:
        """The header of the first frame beyond the quota: its checksum differs whenever anything before it does."""
        if self._opened is None:
            return b""
        return os.pread(self._opened.wal_descriptor, FRAME_HEADER_BYTES, self._quota_end())
