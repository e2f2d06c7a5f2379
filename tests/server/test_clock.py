"""The two clocks, of the machine and of tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from bird_server.clock import Clock, FakeClock, SystemClock


def test_the_machines_clock_is_in_utc_and_does_not_go_back() -> None:
    clock: Clock = SystemClock()
    before, first, second = datetime.now(UTC), clock.now(), clock.monotonic()
    assert first.tzinfo is UTC
    assert before <= first <= datetime.now(UTC)
    assert clock.monotonic() >= second


def test_a_fake_clock_moves_when_told_and_both_its_hands_together() -> None:
    clock = FakeClock(datetime(2024, 2, 28, 23, 59, 59, tzinfo=UTC))
    assert (clock.monotonic(), clock.now()) == (0.0, datetime(2024, 2, 28, 23, 59, 59, tzinfo=UTC))
    clock.advance(0.5)
    clock.advance(0.5)
    assert (clock.monotonic(), clock.now()) == (1.0, datetime(2024, 2, 29, tzinfo=UTC))
    assert FakeClock().now() + timedelta(0) == datetime(2030, 1, 1, tzinfo=UTC)
