"""The in-process engine keeps the port's contract; and what is its own: functions and REALs as the scorer has them."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from bird_server.engine.local import LocalEngine, scorer_float_digits, scorer_functions
from bird_snapshots.failures import Outcome
from bird_snapshots.testing import SteppedClock
from engine_contract import LIMITS, Disk, EngineContract, Rig


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
