"""Places and the queue for them."""

from __future__ import annotations

import asyncio

import pytest

from bird_env.errors import Overloaded, ShuttingDown, TrajectoryGone
from bird_server.admission import Admission


async def _settle() -> None:
    """Let every task that can run do so."""
    for _ in range(5):
        await asyncio.get_running_loop().run_in_executor(None, lambda: None)


async def test_takes_up_to_capacity_then_refuses_without_a_wait() -> None:
    admission = Admission(2, 10)
    await admission.take(0)
    await admission.take(0)
    with pytest.raises(Overloaded) as caught:
        await admission.take(0)
    assert caught.value.retryable
    assert caught.value.retry_after_s
    assert admission.taken == 2


async def test_a_freed_place_goes_to_the_first_in_the_queue() -> None:
    admission = Admission(1, 10)
    await admission.take(0)
    order: list[str] = []

    async def want(name: str) -> None:
        await admission.take(60)
        order.append(name)

    tasks = [asyncio.create_task(want(name)) for name in ("first", "second")]
    await _settle()
    assert admission.queued == 2
    admission.give_back()
    await _settle()
    assert order == ["first"]
    admission.give_back()
    await asyncio.gather(*tasks)
    assert order == ["first", "second"]
    assert (admission.taken, admission.queued) == (1, 0)


async def test_a_newcomer_does_not_overtake_the_queue() -> None:
    admission = Admission(1, 10)
    await admission.take(0)
    waiting = asyncio.create_task(admission.take(60))
    await _settle()
    admission.give_back()
    with pytest.raises(Overloaded):
        await admission.take(0)
    await waiting


async def test_the_queue_is_bounded() -> None:
    admission = Admission(1, 1)
    await admission.take(0)
    waiting = asyncio.create_task(admission.take(60))
    await _settle()
    with pytest.raises(Overloaded):
        await admission.take(60)
    admission.give_back()
    await waiting


async def test_who_gives_up_leaves_no_trace() -> None:
    admission = Admission(1, 10)
    await admission.take(0)
    with pytest.raises(Overloaded):
        await admission.take(1e-6)
    assert admission.queued == 0
    cancelled = asyncio.create_task(admission.take(60))
    await _settle()
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert admission.queued == 0
    admission.give_back()
    assert admission.taken == 0


async def test_a_place_that_comes_to_one_who_was_just_cancelled_is_passed_on() -> None:
    admission = Admission(1, 10)
    await admission.take(0)
    first = asyncio.create_task(admission.take(60))
    second = asyncio.create_task(admission.take(60))
    await _settle()
    admission.give_back()  # the place is handed to the first, who has not run yet
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await second
    assert (admission.taken, admission.queued) == (1, 0)


async def test_a_wait_can_be_called_off_by_its_name() -> None:
    admission = Admission(1, 10)
    await admission.take(0)
    off = asyncio.create_task(admission.take(60, "a"))
    on = asyncio.create_task(admission.take(60, "b"))
    await _settle()
    admission.call_off("a", TrajectoryGone("ended"))
    with pytest.raises(TrajectoryGone):
        await off
    assert admission.queued == 1
    admission.give_back()
    await on
    assert (admission.taken, admission.queued) == (1, 0)


async def test_a_closed_queue_answers_those_who_wait_and_takes_nobody() -> None:
    admission = Admission(1, 10)
    await admission.take(0)
    waiting = asyncio.create_task(admission.take(60, "a"))
    await _settle()
    admission.close()
    with pytest.raises(ShuttingDown):
        await waiting
    with pytest.raises(ShuttingDown):
        await admission.take(0)
    admission.give_back()
    assert (admission.taken, admission.queued) == (0, 0)
