"""Locks by key."""

from __future__ import annotations

import asyncio

from bird_server.keyed_locks import KeyedLocks


async def test_one_key_is_held_by_one_at_a_time_and_keys_do_not_meet() -> None:
    locks = KeyedLocks()
    events: list[str] = []
    gate = asyncio.Event()

    async def hold(key: str, name: str) -> None:
        async with locks.hold(key):
            events.append(f"{name} in")
            await gate.wait()
            events.append(f"{name} out")

    tasks = [asyncio.create_task(hold(key, name)) for key, name in (("a", "a1"), ("a", "a2"), ("b", "b1"))]
    await asyncio.wait(tasks, timeout=0)
    await asyncio.get_running_loop().run_in_executor(None, lambda: None)
    assert sorted(events) == ["a1 in", "b1 in"]
    assert locks.busy("a")
    gate.set()
    await asyncio.gather(*tasks)
    assert events.index("a1 out") < events.index("a2 in")
    assert len(locks) == 0
    assert not locks.busy("a")


async def test_a_failure_inside_lets_go() -> None:
    locks = KeyedLocks()
    try:
        async with locks.hold("a"):
            raise KeyError("a")
    except KeyError:
        pass
    assert len(locks) == 0
    async with locks.hold("a"):
        assert locks.busy("a")
