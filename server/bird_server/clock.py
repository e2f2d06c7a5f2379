"""Time as an argument: one clock for deadlines, one for dates, both replaceable in tests."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds on a clock that nobody sets: leases and deadlines count on it."""
        ...

    def now(self) -> datetime:
        """The date and time in UTC, for people and records."""
        ...


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> datetime:
        return datetime.now(UTC)


class FakeClock:
    """A clock that moves when told: for tests."""

    def __init__(self, start: datetime | None = None) -> None:
        self._start = start or datetime(2030, 1, 1, tzinfo=UTC)
        self._elapsed_s = 0.0

    def advance(self, seconds: float) -> None:
        self._elapsed_s += seconds

    def monotonic(self) -> float:
        return self._elapsed_s

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed_s)
