"""The ledger's tables: trajectories, their steps, scores, and stored replies of other requests."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import DateTime, Dialect, Float, Index, Integer, String, Table, Text, TypeDecorator
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

#: Raised with every change of the tables; an older ledger is refused with what to do.
SCHEMA_VERSION = 1


class UtcDateTime(TypeDecorator[datetime]):
    """A point in time in UTC. SQLite keeps no zone, so it is put back on when read."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


class JsonText(TypeDecorator[Any]):
    """JSON as ASCII text. SQLite would store a number in a column of type JSON as a number, rounded beyond 2^63."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else json.dumps(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else json.loads(value)


class Base(DeclarativeBase):
    pass


def table_of(row: type[Base]) -> Table[Any]:
    """The table behind a class: plain statements on it cost a fraction of what the mapped ones do."""
    return Base.metadata.tables[row.__tablename__]


class LedgerInfo(Base):
    """One row: the version of the tables."""

    __tablename__ = "ledger_info"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    schema_version: Mapped[int] = mapped_column(Integer)


class TrajectoryRow(Base):
    __tablename__ = "trajectories"
    __table_args__ = (Index("trajectories_by_run", "run_id", "seq"), Index("trajectories_by_status", "status", "seq"))

    seq: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    trajectory_id: Mapped[str] = mapped_column(String(200), unique=True)
    run_id: Mapped[str | None] = mapped_column(String(200))
    group_id: Mapped[str | None] = mapped_column(String(200))
    task_id: Mapped[str | None] = mapped_column(Text)
    database: Mapped[str] = mapped_column(Text)
    template: Mapped[str] = mapped_column(String(64))
    status: Mapped[str] = mapped_column(String(16))
    end_reason: Mapped[str | None] = mapped_column(String(32))
    closed: Mapped[bool] = mapped_column(default=False)
    epoch: Mapped[int] = mapped_column(Integer)
    next_step_index: Mapped[int] = mapped_column(Integer)
    limits: Mapped[dict[str, Any]] = mapped_column(JsonText)
    lease_s: Mapped[float] = mapped_column(Float)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    lifetime_expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    client_metadata: Mapped[dict[str, Any]] = mapped_column(JsonText)
    seed: Mapped[int | None] = mapped_column(Integer)
    format: Mapped[str] = mapped_column(String(16))
    preprocess_sql: Mapped[list[str]] = mapped_column(JsonText)
    fingerprint: Mapped[str] = mapped_column(String(64))
    first_observation: Mapped[str] = mapped_column(Text)
    score: Mapped[str | None] = mapped_column(Text)
    reward: Mapped[float | None] = mapped_column(Float)


class StepRow(Base):
    __tablename__ = "steps"

    trajectory_id: Mapped[str] = mapped_column(String(200), primary_key=True)
    epoch: Mapped[int] = mapped_column(Integer, primary_key=True)
    step_index: Mapped[int] = mapped_column(Integer, primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64))
    action: Mapped[dict[str, Any]] = mapped_column(JsonText)
    policy_version: Mapped[Any] = mapped_column(JsonText, nullable=True)
    outcome: Mapped[str] = mapped_column(String(16))
    reply: Mapped[str] = mapped_column(Text)
    result_hash: Mapped[str] = mapped_column(String(64))
    in_transaction: Mapped[bool] = mapped_column()
    pinned: Mapped[bool] = mapped_column()
    position: Mapped[str | None] = mapped_column(Text)
    elapsed_ms: Mapped[float] = mapped_column(Float)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class ScoreRow(Base):
    """Every score given: of a trajectory's submission, or of a solution on its own."""

    __tablename__ = "scores"

    seq: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    trajectory_id: Mapped[str | None] = mapped_column(String(200), index=True)
    epoch: Mapped[int | None] = mapped_column(Integer)
    task_id: Mapped[str | None] = mapped_column(Text)
    solution: Mapped[list[str]] = mapped_column(JsonText)
    score: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class ReplyRow(Base):
    """The stored reply to a POST with an Idempotency-Key."""

    __tablename__ = "replies"

    key: Mapped[str] = mapped_column(String(300), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64))
    status: Mapped[int] = mapped_column(Integer)
    body: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
