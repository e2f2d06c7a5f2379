"""A live trajectory as the service would hold it, for tests of what is shown and kept of one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from bird_env.models import Limits, ObservationFormat
from bird_server.clock import FakeClock
from bird_server.limits import TrajectoryLimits
from bird_server.live import LiveTrajectory
from bird_server.settings import Settings

NOW = FakeClock().now()


def live(trajectory_id: str = "t1", **changes: Any) -> LiveTrajectory:
    """Made at `NOW`, with a lease of a minute; every field can be given."""
    values: dict[str, Any] = {
        "trajectory_id": trajectory_id,
        "run_id": "run",
        "group_id": None,
        "task_id": "task",
        "database": "shop",
        "template": "0" * 64,
        "epoch": 0,
        "next_step_index": 0,
        "limits": TrajectoryLimits.resolve(Limits(rows=7), Settings()),
        "lease_s": 60.0,
        "created_at": NOW,
        "lifetime_expires_at": NOW + timedelta(hours=1),
        "lifetime_deadline": 3_600.0,
        "metadata": {"k": [1, None, "\ud83d"]},
        "seed": -5,
        "format": ObservationFormat.REPR,
        "preprocess_sql": ["SELECT '\ud83d'"],
        "fingerprint": "f" * 64,
    }
    return LiveTrajectory(**{**values, **changes})
