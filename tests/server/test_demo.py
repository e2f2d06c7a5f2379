"""The demonstration: it shows what it should, and it would notice if it did not."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import command_line
from bird_env import ExecuteSql, Observation, ObservationFormat, Outcome, RolloutResult, StepResult, Submit
from bird_env.errors import ServerUnreachable
from bird_env.models import PoolStatus
from bird_server import demo
from bird_server.demo import DemoReport, Gathering, Played, differences, percentile, report
from bird_server.demo_material.policy import Expected, Script

SCRIPT = Script(
    "right", (ExecuteSql(sql="x"), Submit(sql=["y"])), Expected((Outcome.OK, Outcome.SUBMITTED), success=True)
)


def step(outcome: Outcome, reward: float | None = None) -> StepResult:
    return StepResult(
        trajectory_id="t",
        epoch=0,
        step_index=0,
        observation=Observation(text="", format=ObservationFormat.TABLE),
        outcome=outcome,
        reward=reward,
        elapsed_ms=2.0,
    )


def played(script: Script = SCRIPT, **fields: Any) -> Played:
    steps = (step(Outcome.OK), step(Outcome.SUBMITTED, 1.0))
    result = RolloutResult(
        task_id="a", trajectory_id="t", group_id="g", group_index=0, reward=1.0, steps=steps, step_s=(0.01, 0.5)
    )
    return Played("Query", script, replace(result, **fields))


def pool(live: int = 1) -> PoolStatus:
    return PoolStatus(live=live, capacity=9, queued=0, served=5, disk_bytes=100, scoring=0, templates=[])


def reported(*trajectories: Played, gathered: PoolStatus | None = None, **fields: Any) -> DemoReport:
    known = {"after": pool(0), "elapsed_s": 2.0, "template_bytes": 1_000, "before": "aa", "now": "aa", **fields}
    return report(trajectories, gathered=gathered or pool(len(trajectories)), **known)


def test_what_went_as_it_must_is_no_surprise() -> None:
    told = reported(played(), played())
    assert told.ok
    assert (told.steps, told.steps_per_s, told.live_at_once, told.replicas_served) == (4, 2.0, 2, 5)
    assert (told.disk_bytes, told.copies_bytes) == (100, 2_000)
    assert (told.execute_ms_p50, told.submit_ms_p99, told.stopped_ms_p50, told.engine_ms_p50) == (
        10.0,
        500.0,
        None,
        2.0,
    )
    assert [asdict(line) for line in told.categories] == [
        {"name": "Query", "trajectories": 2, "succeeded": 2, "expected": 2, "steps": 4}
    ]
    assert json.dumps(asdict(told))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"reward": 0.0}, "reward 0.0, not 1.0"),
        ({"reward": None}, "reward None, not 1.0"),
        ({"steps": (step(Outcome.SQL_ERROR), step(Outcome.SUBMITTED, 1.0))}, "outcomes sql_error, submitted, not ok"),
        ({"steps": (step(Outcome.OK),)}, "outcomes ok, not"),
        ({"error": ServerUnreachable("gone"), "reward": None}, "ServerUnreachable: gone"),
        ({"unclosed": ServerUnreachable("gone")}, "could not be ended"),
    ],
)
def test_what_went_otherwise_is_a_surprise(fields: dict[str, Any], said: str) -> None:
    assert said in "\n".join(differences(played(**fields)))


def test_a_wrong_answer_that_succeeds_is_a_surprise() -> None:
    wrong = replace(SCRIPT, kind="wrong", expected=replace(SCRIPT.expected, success=False))
    assert "reward 1.0, not 0.0" in "\n".join(differences(played(wrong)))


def test_the_world_around_is_checked_too() -> None:
    assert "bytes have changed" in "\n".join(reported(played(), now="bb").surprises)
    assert "1 of 2 trajectories were live" in "\n".join(reported(played(), played(), gathered=pool(1)).surprises)
    assert "still live" in "\n".join(reported(played(), after=pool(1)).surprises)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.integers(1, 100))
def test_a_percentile_is_a_value_that_enough_do_not_exceed(values: list[float], percent: int) -> None:
    found = percentile(values, percent)
    assert found in {round(value, 1) for value in values}
    assert sum(round(value, 1) <= found for value in values) * 100 >= percent * len(values)
    assert percentile([], percent) is None


async def test_trajectories_wait_for_each_other_and_for_none_that_has_ended() -> None:
    gathering = Gathering(3)
    waiting = [asyncio.create_task(gathering.wait(name)) for name in ("a", "b")]
    complete = asyncio.create_task(gathering.complete())
    await asyncio.wait([*waiting, complete], timeout=0)
    gathering.count("a")
    gathering.count("a")
    assert not complete.done()
    gathering.count("c")
    await complete
    assert not any(task.done() for task in waiting)
    gathering.dismiss()
    await asyncio.gather(*waiting)


def test_the_real_thing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More trajectories than kinds of script: right, wrong, broken, mended and runaway ones."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("BIRD_ENV_RUN_TOKEN", "of another server")
    ran = command_line.run("demo", "--json", "--trajectories", "12")
    told = json.loads(ran.stdout)
    assert ran.exit_code == 0, told
    assert told["ok"]
    assert told["surprises"] == []
    assert told["live_at_once"] == told["trajectories"] == 12
    assert {line["name"] for line in told["scripts"]} == {"broken", "mended", "right", "runaway", "wrong"}
    assert told["template_sha256_before"] == told["template_sha256_after"]
    assert 0 < told["disk_bytes"] < told["copies_bytes"]
    assert list(tmp_path.iterdir()) == []


def test_a_surprise_ends_with_1_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(folder: Path, **_: object) -> DemoReport:
        return reported(played(reward=0.0))

    monkeypatch.setattr(demo, "run", run)
    ran = command_line.run("demo")
    assert ran.exit_code == 1
    assert "NOT AS EXPECTED" in ran.output
    assert "Success by category" in ran.output
    assert "byte-identical" in ran.output


def test_a_server_that_does_not_come_up_ends_with_2(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(folder: Path, **_: object) -> DemoReport:
        raise ServerUnreachable("The server did not come up:\nno descriptors")

    monkeypatch.setattr(demo, "run", run)
    ran = command_line.run("demo")
    assert ran.exit_code == 2
    assert "did not come up" in ran.output
