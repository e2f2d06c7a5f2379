"""Places and threads: who runs, who waits, and what is left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from bird_server.engine.places import GiveBack, Places


class Door:
    """Work that says when it has begun, and goes on when it is let."""

    def __init__(self, *, long: bool = False) -> None:
        self.begun, self.open = threading.Event(), threading.Event()
        self._long = long

    def work(self, give_back: GiveBack) -> str:
        if self._long:
            give_back()
            give_back()
        self.begun.set()
        assert self.open.wait(30)
        return "done"


@pytest.fixture
def places() -> Iterator[Places]:
    made = Places(2, 2, "test")
    yield made
    made.close(RuntimeError("over"), 30)


def returns(value: str) -> Callable[[GiveBack], str]:
    return lambda _give_back: value


def test_results_and_errors_come_back(places: Places) -> None:
    def fails(_give_back: GiveBack) -> None:
        raise ValueError("no")

    assert places.submit("a", returns("x")).result(30) == "x"
    with pytest.raises(ValueError, match="no"):
        places.submit("b", fails).result(30)


def test_no_more_runs_at_once_than_there_are_places(places: Places) -> None:
    doors = [Door() for _ in range(3)]
    futures = [places.submit(str(number), each.work) for number, each in enumerate(doors)]
    assert doors[0].begun.wait(30)
    assert doors[1].begun.wait(30)
    assert not futures[2].running()
    doors[0].open.set()
    assert doors[2].begun.wait(30)
    for each in doors:
        each.open.set()
    assert [each.result(30) for each in futures] == ["done"] * 3


def test_who_gives_the_place_back_lets_one_more_in_and_only_one(places: Places) -> None:
    longs, short, waiting = [Door(long=True) for _ in range(2)], [Door(), Door()], Door()
    for number, each in enumerate([*longs, *short, waiting]):
        places.submit(str(number), each.work)
    for each in (*longs, *short):
        assert each.begun.wait(30)
    longs[0].open.set()
    longs[1].open.set()
    assert not waiting.begun.is_set(), "the end of long work frees no second place"
    short[0].open.set()
    assert waiting.begun.wait(30)
    short[1].open.set()
    waiting.open.set()


def test_work_that_nobody_waits_for_any_more_is_passed_over(places: Places) -> None:
    doors = [Door(), Door()]
    futures = [places.submit("d", each.work) for each in doors]
    given_up = places.submit("given up", returns("never"))
    assert given_up.cancel()
    after = places.submit("after", returns("x"))
    for each in doors:
        each.open.set()
    assert after.result(30) == "x"
    assert [each.result(30) for each in futures] == ["done", "done"]


def test_what_does_not_end_is_told_and_not_waited_for() -> None:
    places = Places(1, 1, "left")
    stuck = Door()
    running, queued = places.submit("stuck", stuck.work), places.submit("queued", returns("x"))
    assert stuck.begun.wait(30)
    assert places.close(OSError("stopping"), 0) == ["stuck"]
    for each in (running, queued):
        with pytest.raises(OSError, match="stopping"):
            each.result(0)
    with pytest.raises(RuntimeError):
        places.submit("late", returns("x"))
    assert places.close(OSError("stopping"), 0) == []
    stuck.open.set()
    for thread in threading.enumerate():
        if thread.name.startswith("left"):
            thread.join(30)
    with pytest.raises(OSError, match="stopping"):
        running.result(0)
