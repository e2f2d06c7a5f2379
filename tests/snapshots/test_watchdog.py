"""The thread that looks at running calls: when it is there, what it looks at."""

from __future__ import annotations

import threading

from bird_snapshots.watchdog import Watchdog


class Call:
    def __init__(self) -> None:
        self.looked_at = threading.Event()

    def watch(self) -> None:
        self.looked_at.set()


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "sql-watchdog"]


def test_it_looks_at_what_runs_and_at_nothing_else() -> None:
    watchdog, running, over = Watchdog(3_600), Call(), Call()
    watchdog.add(running)
    watchdog.add(over)
    watchdog.discard(over)
    watchdog.discard(over)
    watchdog.look()
    assert running.looked_at.is_set()
    assert not over.looked_at.is_set()
    watchdog.close()


def test_its_thread_starts_with_the_first_call_sleeps_and_wakes_for_the_next() -> None:
    before = len(threads())
    watchdog, ticks = Watchdog(0.001), threading.Event()
    assert len(threads()) == before
    for _ in range(3):
        call = Call()
        watchdog.add(call)
        assert call.looked_at.wait(30)
        watchdog.discard(call)
        while not watchdog._asleep:
            ticks.wait(0.001)
    assert len(threads()) == before + 1
    watchdog.close()
    assert len(threads()) == before


def test_it_ends_asleep_or_awake_and_starts_no_more() -> None:
    before = len(threads())
    for busy in (True, False):
        watchdog, call = Watchdog(0.001), Call()
        watchdog.add(call)
        assert call.looked_at.wait(30)
        if not busy:
            watchdog.discard(call)
        watchdog.close()
        watchdog.close()
        watchdog.discard(call)
        watchdog.add(Call())
        assert len(threads()) == before
