"""Turns for long calls: who goes in, who waits, who is let go."""

from __future__ import annotations

import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from bird_snapshots.gate import Gate, Visit


def test_as_many_go_in_as_there_are_slots() -> None:
    gate, visits = Gate(2), [Visit() for _ in range(4)]
    assert [gate.ask(each, 1.0) for each in visits] == [True, True, False, False]
    assert gate.waiting == 2
    gate.leave(visits[0])
    assert [each.inside for each in visits] == [False, True, True, False]
    gate.wait(visits[2])  # it was called: returns at once


def test_a_turn_lasts_while_nobody_waits_and_then_its_slice() -> None:
    gate, first, second = Gate(1, slice_s=0.5), Visit(), Visit()
    assert gate.ask(first, 1.0)
    assert gate.ask(first, 9.0)
    assert not gate.ask(second, 1.0)
    assert gate.ask(first, 9.4), "its slice began when nobody waited"
    assert not gate.ask(first, 9.6), "the slice is over and somebody waits"
    assert (first.inside, second.inside) == (False, True)
    assert gate.ask(second, 1.4)
    assert not gate.ask(second, 1.6)
    assert (first.inside, second.inside) == (True, False)


def test_who_leaves_the_queue_leaves_no_gap() -> None:
    gate, visits = Gate(1), [Visit() for _ in range(3)]
    for each in visits:
        gate.ask(each, 1.0)
    gate.leave(visits[1])
    gate.leave(visits[0])
    assert visits[2].inside
    gate.leave(visits[2])
    gate.leave(visits[2])
    assert gate.ask(Visit(), 1.0)
    assert not gate.ask(Visit(), 1.0), "leaving twice gives no second slot"


def test_who_is_dismissed_is_woken_and_never_waits_again() -> None:
    gate, inside, parked = Gate(1), Visit(), Visit()
    gate.ask(inside, 1.0)
    assert not gate.ask(parked, 1.0)
    thread = threading.Thread(target=gate.wait, args=(parked,))
    thread.start()
    gate.dismiss(parked)
    thread.join(30)
    assert not thread.is_alive()
    assert gate.ask(parked, 2.0)
    assert (parked.inside, gate.waiting) == (False, 0)
    gate.dismiss(inside)
    assert gate.ask(Visit(), 1.0), "its slot is free again"


@settings(max_examples=80, deadline=None)
@given(
    slots=st.integers(1, 3),
    script=st.lists(st.tuples(st.integers(0, 5), st.sampled_from(("ask", "leave", "dismiss"))), max_size=60),
)
def test_never_more_inside_than_slots_and_none_waits_while_one_is_free(
    slots: int, script: list[tuple[int, str]]
) -> None:
    gate, visits, cpu_s = Gate(slots), [Visit() for _ in range(6)], 0.0
    queued: set[int] = set()
    for number, action in script:
        cpu_s += 0.3
        visit = visits[number]
        if action == "ask" and (number not in queued or visit.inside):  # a parked call asks nothing
            queued.discard(number)
            if not gate.ask(visit, cpu_s):
                queued.add(number)
        elif action == "leave":
            gate.leave(visit)
            visits[number] = Visit()
            queued.discard(number)
        elif action == "dismiss":
            gate.dismiss(visit)
            queued.discard(number)
        inside = sum(each.inside for each in visits)
        assert inside <= slots
        assert gate.waiting == 0 or inside == slots
        assert gate.waiting == sum(not visits[each].inside for each in queued)
