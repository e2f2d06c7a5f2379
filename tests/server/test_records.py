"""What is written of a trajectory's life, read back from a real ledger."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from bird_env.models import (
    EndReason,
    ExecuteSql,
    Observation,
    ObservationFormat,
    Outcome,
    Score,
    ScoreStatus,
    StepRequest,
    StepResult,
    Submit,
    TrajectoryStatus,
)
from bird_server.engine.port import Executed
from bird_server.ledger.models import ScoreRow, TrajectoryRow
from bird_server.ledger.store import Ledger
from bird_server.records import insert_score, insert_step, insert_trajectory, update_closed, update_ended, update_reset
from bird_server.wire import to_json
from bird_snapshots.execution import Execution
from bird_snapshots.failures import Outcome as EngineOutcome
from bird_snapshots.position import Position
from trajectory_rows import NOW, live

SCORE = Score(task_id="task", status=ScoreStatus.SUCCESS, reward=1.0, reward_parts={"official": 1.0})


async def kept(ledger: Ledger, trajectory_id: str = "t1") -> TrajectoryRow:
    row = await ledger.trajectory(trajectory_id)
    assert row is not None
    return row


def result(outcome: Outcome = Outcome.OK) -> StepResult:
    observation = Observation(text="\ud83d", format=ObservationFormat.TABLE, result_hash="h", in_transaction=True)
    return StepResult(
        trajectory_id="t1", epoch=0, step_index=0, observation=observation, outcome=outcome, elapsed_ms=1.5
    )


def executed(**changes: Any) -> Executed:
    values: dict[str, Any] = {
        "statements": [],
        "outcome": EngineOutcome.OK,
        "error": None,
        "columns": (),
        "rows": [],
        "rows_seen": 0,
        "truncated": False,
        "rowcount": None,
        "in_transaction": True,
        "pinned": True,
        "transaction_rolled_back": False,
        "position": Position("a" * 32, 3, (7, 9)),
        "elapsed_ms": 1.0,
        "cpu_ms": 1.0,
        "digest": "d",
    }
    return Executed(Execution(**{**values, **changes}), queue_ms=0.1)


async def test_a_new_trajectory_is_kept_whole(ledger: Ledger) -> None:
    one = live()
    await ledger.write(insert_trajectory(one, '{"text":"x"}'))
    row = await kept(ledger)
    assert (row.status, row.closed, row.end_reason, row.ended_at, row.score) == ("live", False, None, None, None)
    assert (row.run_id, row.group_id, row.task_id, row.seed, row.format) == ("run", None, "task", -5, "repr")
    assert row.client_metadata == one.metadata
    assert row.preprocess_sql == one.preprocess_sql
    assert row.first_observation == '{"text":"x"}'
    assert row.limits == one.limits.wire()


async def test_an_end_keeps_its_reason_its_steps_and_its_score(ledger: Ledger) -> None:
    one = live()
    at = NOW + timedelta(seconds=5)
    await ledger.write(
        insert_trajectory(one, "{}"), update_ended(one, EndReason.SUBMITTED, at=at, steps=4, score=SCORE)
    )
    row = await kept(ledger)
    assert (row.status, row.end_reason, row.closed, row.next_step_index) == ("ended", "submitted", False, 4)
    assert (row.ended_at, row.reward) == (at, 1.0)
    assert row.score is not None
    assert Score.model_validate(json.loads(row.score)) == SCORE
    await ledger.write(update_closed("t1"))
    assert (await kept(ledger)).closed is True
    assert (await kept(ledger)).end_reason == "submitted"


async def test_an_end_for_good_without_a_score(ledger: Ledger) -> None:
    one = live()
    await ledger.write(insert_trajectory(one, "{}"), update_ended(one, EndReason.DELETED, at=NOW, steps=1, closed=True))
    row = await kept(ledger)
    assert (row.closed, row.score, row.reward) == (True, None, None)


async def test_a_reset_forgets_the_end_and_the_score_of_its_own_trajectory_only(ledger: Ledger) -> None:
    one, other = live("t1"), live("t2")
    for each in (one, other):
        await ledger.write(
            insert_trajectory(each, "{}"), update_ended(each, EndReason.SUBMITTED, at=NOW, steps=2, score=SCORE)
        )
    one.epoch = 1
    one.lifetime_expires_at = NOW + timedelta(hours=9)
    await ledger.write(update_reset(one))
    row = await kept(ledger)
    assert (row.status, row.end_reason, row.ended_at, row.score, row.reward) == ("live", None, None, None, None)
    assert (row.epoch, row.next_step_index, row.lifetime_expires_at) == (1, 0, NOW + timedelta(hours=9))
    assert (await kept(ledger, "t2")).status == TrajectoryStatus.ENDED


async def test_a_step_is_kept_with_where_it_left_the_replica(ledger: Ledger) -> None:
    request = StepRequest(epoch=0, step_index=0, action=ExecuteSql(sql="SELECT '\ud83d'"), policy_version="p\u00e9")
    await ledger.write(insert_step(request, "digest", result(), executed(), reply=to_json(result()), at=NOW))
    row = await ledger.step("t1", 0, 0)
    assert row is not None
    assert row.action == {"type": "execute_sql", "sql": "SELECT '\ud83d'"}
    assert (row.fingerprint, row.policy_version, row.outcome, row.elapsed_ms) == ("digest", "pé", "ok", 1.5)
    assert (row.in_transaction, row.pinned) == (True, True)
    assert row.position is not None
    assert "a" * 32 in row.position
    assert (row.result_hash, row.created_at) == ("h", NOW)
    assert StepResult.model_validate(json.loads(row.reply)) == result()


@pytest.mark.parametrize("version", [None, 7, "seven"])
async def test_a_submission_is_kept_without_a_replica(ledger: Ledger, version: str | int | None) -> None:
    request = StepRequest(epoch=0, step_index=0, action=Submit(sql=["a", "\ud83d"]), policy_version=version)
    await ledger.write(insert_step(request, "digest", result(Outcome.SUBMITTED), None, reply="{}", at=NOW))
    row = await ledger.step("t1", 0, 0)
    assert row is not None
    assert row.action == {"type": "submit", "sql": ["a", "\ud83d"]}
    assert (row.pinned, row.position, row.policy_version) == (False, None, version)


async def test_scores_are_kept_of_trajectories_and_of_none(ledger: Ledger) -> None:
    await ledger.write(
        insert_score(SCORE, ["a"], at=NOW, trajectory_id="t1", epoch=2),
        insert_score(SCORE, ["b", "\ud83d"], at=NOW, trajectory_id=None),
    )
    rows = await ledger._all(select(ScoreRow).order_by(ScoreRow.seq))  # pyright: ignore[reportPrivateUsage]
    assert [(row.trajectory_id, row.epoch, row.task_id, row.solution) for row in rows] == [
        ("t1", 2, "task", ["a"]),
        (None, None, "task", ["b", "\ud83d"]),
    ]
    assert Score.model_validate(json.loads(rows[1].score)) == SCORE
