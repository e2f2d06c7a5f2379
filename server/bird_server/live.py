"""A live trajectory as the service holds it: what it is, where it stands, and how the wire and the ledger show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from bird_env.models import EndReason, ObservationFormat, Trajectory, TrajectoryStatus
from bird_server.ledger.models import TrajectoryRow
from bird_server.ledger.store import Write
from bird_server.limits import TrajectoryLimits


def replica_key(trajectory_id: str, epoch: int) -> str:
    """The engine's name for a trajectory's replica: one an epoch."""
    return f"{trajectory_id}#{epoch}"


@dataclass(slots=True)
class Uncommitted:
    """A step that was run and waits for its commit."""

    step_index: int
    reply: str
    writes: Sequence[Write]
    ends: EndReason | None


@dataclass(slots=True)
class LiveTrajectory:
    """A trajectory that holds a replica and a place."""

    trajectory_id: str
    run_id: str | None
    group_id: str | None
    task_id: str | None
    database: str
    template: str
    epoch: int
    next_step_index: int
    limits: TrajectoryLimits
    lease_s: float
    created_at: datetime
    lifetime_expires_at: datetime
    lifetime_deadline: float
    metadata: dict[str, Any]
    seed: int | None
    format: ObservationFormat
    preprocess_sql: list[str]
    fingerprint: str
    lease_deadline: float = 0.0
    lease_expires_at: datetime | None = None
    uncommitted: Uncommitted | None = None

    @property
    def key(self) -> str:
        return replica_key(self.trajectory_id, self.epoch)

    @classmethod
    def revived(cls, row: TrajectoryRow) -> Self:
        """A trajectory from its row: what `reset` makes live again. Its lease and lifetime are still to be set."""
        return cls(
            trajectory_id=row.trajectory_id,
            run_id=row.run_id,
            group_id=row.group_id,
            task_id=row.task_id,
            database=row.database,
            template=row.template,
            epoch=row.epoch,
            next_step_index=0,
            limits=TrajectoryLimits.from_wire(row.limits),
            lease_s=row.lease_s,
            created_at=row.created_at,
            lifetime_expires_at=row.lifetime_expires_at,
            lifetime_deadline=0.0,
            metadata=row.client_metadata,
            seed=row.seed,
            format=ObservationFormat(row.format),
            preprocess_sql=row.preprocess_sql,
            fingerprint=row.fingerprint,
        )

    def view(self) -> Trajectory:
        """As the wire shows it."""
        return Trajectory(
            trajectory_id=self.trajectory_id,
            run_id=self.run_id,
            group_id=self.group_id,
            task_id=self.task_id,
            database=self.database,
            template_sha256=self.template,
            status=TrajectoryStatus.LIVE,
            epoch=self.epoch,
            next_step_index=self.next_step_index,
            max_steps=self.limits.max_steps,
            limits=self.limits.wire(),
            lease_s=self.lease_s,
            created_at=self.created_at,
            lease_expires_at=self.lease_expires_at,
            lifetime_expires_at=self.lifetime_expires_at,
            metadata=self.metadata,
            seed=self.seed,
        )


def view_of_row(row: TrajectoryRow) -> Trajectory:
    """A trajectory that is not live, as the wire shows it."""
    limits = TrajectoryLimits.from_wire(row.limits)
    return Trajectory(
        trajectory_id=row.trajectory_id,
        run_id=row.run_id,
        group_id=row.group_id,
        task_id=row.task_id,
        database=row.database,
        template_sha256=row.template,
        status=TrajectoryStatus(row.status),
        end_reason=EndReason(row.end_reason) if row.end_reason else None,
        epoch=row.epoch,
        next_step_index=row.next_step_index,
        max_steps=limits.max_steps,
        limits=limits.wire(),
        lease_s=row.lease_s,
        created_at=row.created_at,
        lease_expires_at=None,
        lifetime_expires_at=row.lifetime_expires_at,
        ended_at=row.ended_at,
        metadata=row.client_metadata,
        seed=row.seed,
        reward=row.reward,
    )
