"""A clock that passes only when something sleeps on it: for retries and leases, without waiting."""

from __future__ import annotations


class FakeClock:
    """Give `clock=fake`, `sleep=fake.sleep` to a `Client`, `sleep=fake.sleep_async` to an `AsyncClient`.

    Attributes:
        now_s: Seconds since the start.
        slept_s: Every sleep so far, in seconds.
    """

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s
        self.slept_s: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        self.now_s += seconds

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds

    async def sleep_async(self, seconds: float) -> None:
        self.sleep(seconds)
