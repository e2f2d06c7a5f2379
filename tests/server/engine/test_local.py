"""The in-process engine keeps the port's contract; and what is its own: functions and REALs as the scorer has them."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from bird_env.errors import BirdEnvError, ShuttingDown
from bird_server.engine.local import LocalEngine, scorer_float_digits, scorer_functions
from bird_snapshots.failures import Outcome
from bird_snapshots.gate import Gate, Visit
from bird_snapshots.limits import Limits
from bird_snapshots.testing import SteppedClock
from engine_contract import COUNT, ENDLESS, LIMITS, Disk, EngineContract, Rig


class TestLocalEngine(EngineContract):
    def make(self, root: Path, disk: Disk, clock: SteppedClock) -> LocalEngine:
        return LocalEngine(root, threads=2, files=disk, clock=clock.clock)

    async def test_no_thread_outlives_it(self, rig: Rig) -> None:
        await rig.acquire()
        assert any(thread.name.startswith("sql") for thread in threading.enumerate())
        await rig.engine.stop()
        assert not any(thread.name.startswith("sql") for thread in threading.enumerate())

    async def test_a_real_becomes_text_as_in_the_scorers_library(self, rig: Rig) -> None:
        await rig.acquire()
        sql = "SELECT CAST(0.1 + 0.2 AS TEXT), 1e300 || '', round(2.5) || ''"
        with closing(sqlite3.connect(":memory:")) as scorer:
            assert await rig.rows(sql) == [scorer.execute(sql).fetchone()]

    async def test_a_function_that_the_scorer_lacks_is_refused(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("bird_server.engine.local.scorer_functions", lambda: scorer_functions() - {"printf"})
        await rig.engine.stop()
        for like_scorer, outcome in ((True, Outcome.SQL_ERROR), (False, Outcome.OK)):
            engine = LocalEngine(rig.root, threads=1, like_scorer=like_scorer)
            await engine.start()
            await engine.acquire("k", rig.digest, [], LIMITS)
            execution = (await engine.execute("k", "SELECT printf('%d', 1)", LIMITS)).execution
            assert execution.outcome is outcome
            await engine.stop()

    async def test_short_texts_run_at_once_beside_any_number_of_runaways(self, rig: Rig) -> None:
        await rig.engine.stop()
        gate = Gate(1, after_s=0.01)
        held = Visit()
        gate.ask(held, 0)  # nothing long goes on until the test says so
        engine = LocalEngine(rig.root, threads=2, gate=gate)
        await engine.start()
        keys = [f"k{number}" for number in range(8)]
        for key in [*keys, "short"]:
            await engine.acquire(key, rig.digest, [], LIMITS)
        limits = Limits(cpu_s=0.05, wall_s=60)
        runaways = [asyncio.create_task(engine.execute(key, ENDLESS, limits)) for key in keys]
        while gate.waiting < 8:  # four times as many as there are places
            assert (await engine.execute("short", COUNT, LIMITS)).execution.rows == [(3,)]
        gate.leave(held)
        ran = await asyncio.gather(*runaways)
        assert [each.execution.outcome for each in ran] == [Outcome.TIMEOUT] * 8
        assert all(each.queue_ms >= each.execution.parked_ms > 0 for each in ran)
        await engine.stop()

    async def test_stopping_wakes_what_waits_for_its_turn(self, rig: Rig) -> None:
        await rig.engine.stop()
        gate = Gate(1, after_s=0.001)
        gate.ask(Visit(), 0)
        engine = LocalEngine(rig.root, threads=1, gate=gate)
        await engine.start()
        for key in ("a", "b"):
            await engine.acquire(key, rig.digest, [], LIMITS)
        running = [asyncio.create_task(engine.execute(key, ENDLESS, LIMITS)) for key in ("a", "b")]
        while gate.waiting < 2:
            await asyncio.wait(running, timeout=0.001)
        await engine.stop()
        assert engine.unfinished() == []
        ended = await asyncio.gather(*running, return_exceptions=True)
        assert all(isinstance(each, BirdEnvError) for each in ended)

    async def test_stop_does_not_wait_for_what_cannot_be_ended(
        self, rig: Rig, caplog: pytest.LogCaptureFixture
    ) -> None:
        await rig.engine.stop()
        engine = LocalEngine(rig.root, threads=1, stop_s=0.01)
        await engine.start()
        await engine.acquire("k", rig.digest, [], LIMITS)
        inside, leave = threading.Event(), threading.Event()
        replica = engine._held["k"].replica

        look = replica._meter.check

        def check() -> bool:  # as SQLite deep in one row: it comes back when it likes
            inside.set()
            leave.wait(60)
            return look()

        replica._connection.set_progress_handler(check, 1_000)
        running = asyncio.create_task(engine.execute("k", ENDLESS, LIMITS))
        await asyncio.to_thread(inside.wait, 30)
        await engine.stop()
        assert engine.unfinished() == [f"k: {ENDLESS}"]
        assert "left behind: k" in caplog.text
        with pytest.raises(ShuttingDown):
            await running
        leave.set()
        for thread in threading.enumerate():
            if thread.name.startswith("sql"):
                thread.join(30)
        assert rig.files() == [], "it is removed by the thread that comes back"


def test_the_scorers_functions_are_asked_of_its_library() -> None:
    found = scorer_functions()
    assert {"count", "abs", "substr", "json_extract"} <= found
    assert all(name == name.lower() for name in found)


@pytest.mark.parametrize(
    ("version", "digits"), [((3, 40, 1), 15), ((3, 52, 9), 15), ((3, 53, 0), None), ((4, 0, 0), None)]
)
def test_digits_follow_the_scorers_version(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int, int], digits: int | None
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    assert scorer_float_digits() == digits
