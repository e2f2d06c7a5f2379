"""Limits as they hold for one trajectory: what the client asked for, cut to what the server allows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

from bird_env.models import Limits as WireLimits
from bird_server.settings import MEGABYTE, Settings
from bird_snapshots.limits import Limits as EngineLimits


@dataclass(frozen=True, slots=True)
class TrajectoryLimits:
    """Every limit of a trajectory, resolved; units as on the wire."""

    sql_cpu_s: float
    sql_wall_s: float
    rows: int
    result_bytes: int
    text_chars: int
    value_bytes: int
    wal_mb: float
    temp_mb: float
    max_steps: int
    schema_chars: int

    @classmethod
    def resolve(cls, asked: WireLimits, settings: Settings) -> Self:
        """The smaller of what was asked and what the server has, name by name."""
        resolved: dict[str, Any] = {}
        for name in cls.__dataclass_fields__:
            own, wanted = getattr(settings, name), getattr(asked, name)
            resolved[name] = own if wanted is None else min(own, wanted)
        return cls(**resolved)

    @classmethod
    def from_wire(cls, stored: dict[str, Any]) -> Self:
        return cls(**stored)

    def wire(self) -> dict[str, int | float]:
        return asdict(self)

    def engine(self) -> EngineLimits:
        """The part that SQLite is held to."""
        return EngineLimits(
            cpu_s=self.sql_cpu_s,
            wall_s=self.sql_wall_s,
            rows=self.rows,
            result_bytes=self.result_bytes,
            value_bytes=self.value_bytes,
            wal_bytes=int(self.wal_mb * MEGABYTE),
            temp_bytes=int(self.temp_mb * MEGABYTE),
        )
