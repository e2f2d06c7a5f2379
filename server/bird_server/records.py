"""What is written to the ledger of a trajectory's life: one function a kind of change."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from bird_env.models import EndReason, Score, StepRequest, StepResult, TrajectoryStatus
from bird_server.engine.port import Executed
from bird_server.ledger.store import INSERT_SCORE, INSERT_STEP, INSERT_TRAJECTORY, UPDATE_TRAJECTORY, Write
from bird_server.live import LiveTrajectory
from bird_server.wire import to_json


def insert_trajectory(live: LiveTrajectory, first_observation: str) -> Write:
    """A new live trajectory."""
    values = {
        "trajectory_id": live.trajectory_id,
        "run_id": live.run_id,
        "group_id": live.group_id,
        "task_id": live.task_id,
        "database": live.database,
        "template": live.template,
        "status": str(TrajectoryStatus.LIVE),
        "closed": False,
        "epoch": live.epoch,
        "next_step_index": 0,
        "limits": live.limits.wire(),
        "lease_s": live.lease_s,
        "created_at": live.created_at,
        "lifetime_expires_at": live.lifetime_expires_at,
        "client_metadata": live.metadata,
        "seed": live.seed,
        "format": str(live.format),
        "preprocess_sql": live.preprocess_sql,
        "fingerprint": live.fingerprint,
        "first_observation": first_observation,
    }
    return Write(INSERT_TRAJECTORY, values)


def update_reset(live: LiveTrajectory) -> Write:
    """A trajectory in a new epoch: live, without steps, without a score."""
    return _update(
        live.trajectory_id,
        status=str(TrajectoryStatus.LIVE),
        end_reason=None,
        ended_at=None,
        epoch=live.epoch,
        next_step_index=0,
        lifetime_expires_at=live.lifetime_expires_at,
        score=None,
        reward=None,
    )


def update_ended(
    live: LiveTrajectory,
    reason: EndReason,
    *,
    at: datetime,
    steps: int,
    score: Score | None = None,
    closed: bool = False,
) -> Write:
    """A trajectory whose episode is over; `closed` when it is over for good."""
    return _update(
        live.trajectory_id,
        status=str(TrajectoryStatus.ENDED),
        end_reason=str(reason),
        closed=closed,
        next_step_index=steps,
        ended_at=at,
        score=to_json(score) if score else None,
        reward=score.reward if score else None,
    )


def update_closed(trajectory_id: str) -> Write:
    """An ended trajectory, now over for good: it cannot be reset."""
    return _update(trajectory_id, closed=True)


def insert_score(
    score: Score, solution: Sequence[str], *, at: datetime, trajectory_id: str | None, epoch: int | None = None
) -> Write:
    """A score, of a trajectory's submission or of a solution on its own."""
    values = {
        "trajectory_id": trajectory_id,
        "epoch": epoch,
        "task_id": score.task_id,
        "solution": list(solution),
        "score": to_json(score),
        "created_at": at,
    }
    return Write(INSERT_SCORE, values)


def insert_step(
    request: StepRequest, digest: str, result: StepResult, executed: Executed | None, *, reply: str, at: datetime
) -> Write:
    """A step with its request's fingerprint and its reply."""
    execution = executed.execution if executed else None
    values = {
        "trajectory_id": result.trajectory_id,
        "epoch": result.epoch,
        "step_index": result.step_index,
        "fingerprint": digest,
        "action": request.action.model_dump(mode="python"),
        "policy_version": request.policy_version,
        "outcome": str(result.outcome),
        "reply": reply,
        "result_hash": result.observation.result_hash,
        "in_transaction": result.observation.in_transaction,
        "pinned": execution.pinned if execution else False,
        "position": str(execution.position) if execution else None,
        "elapsed_ms": result.elapsed_ms,
        "created_at": at,
    }
    return Write(INSERT_STEP, values)


def _update(trajectory_id: str, **values: Any) -> Write:
    return Write(UPDATE_TRAJECTORY, {"of": trajectory_id, **values})
