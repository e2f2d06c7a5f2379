"""Work that outlives the request that asked for it."""

from __future__ import annotations

import asyncio

import pytest

from bird_env.errors import Overloaded, ShuttingDown
from bird_server.operations import Operations


async def test_a_caller_that_goes_away_cancels_nothing() -> None:
    operations, gate, done = Operations(), asyncio.Event(), list[int]()

    async def work() -> None:
        await gate.wait()
        done.append(1)

    caller = asyncio.create_task(operations.run(work()))
    await asyncio.wait([caller], timeout=0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert len(operations) == 1
    gate.set()
    assert await operations.settle() == 0
    assert done == [1]


async def test_results_and_errors_reach_the_caller() -> None:
    operations = Operations()

    async def right() -> int:
        return 7

    async def wrong() -> int:
        raise Overloaded("full")

    assert await operations.run(right()) == 7
    with pytest.raises(Overloaded):
        await operations.run(wrong())
    assert len(operations) == 0


async def test_at_the_end_everybody_who_waits_is_answered_and_the_work_is_still_counted() -> None:
    operations, gate = Operations(), asyncio.Event()
    callers = [asyncio.create_task(operations.run(_waits(gate))) for _ in range(3)]
    await asyncio.wait(callers, timeout=0)
    await asyncio.get_running_loop().run_in_executor(None, lambda: None)
    assert operations.answer_all() == 3
    for outcome in await asyncio.gather(*callers, return_exceptions=True):
        assert isinstance(outcome, ShuttingDown)
    assert await operations.settle(0) == 3
    gate.set()
    assert await operations.settle() == 0


async def test_a_defect_is_logged_even_when_nobody_waits(caplog: pytest.LogCaptureFixture) -> None:
    operations, gate = Operations(), asyncio.Event()

    async def defect() -> None:
        await gate.wait()
        raise KeyError("of the service")

    caller = asyncio.create_task(operations.run(defect()))
    await asyncio.wait([caller], timeout=0)
    caller.cancel()
    gate.set()
    await operations.settle()
    assert "an operation failed" in caplog.text


async def _waits(gate: asyncio.Event) -> None:
    await gate.wait()
