"""The ledger: what is acknowledged stands here first.

Writes go through one task that takes whatever waits and commits it as one transaction: a thousand rollouts cost a few
commits, SQLite never sees two writers, and no caller is answered before its group is committed. A group that fails is
tried again one by one, so that a bad write harms only itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Executable, Select, bindparam, event, func, insert, select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from bird_env.errors import LedgerFault, ShuttingDown
from bird_env.models import EndReason, TrajectoryStatus
from bird_server.clock import Clock
from bird_server.ledger.models import (
    SCHEMA_VERSION,
    Base,
    LedgerInfo,
    ReplyRow,
    ScoreRow,
    StepRow,
    TrajectoryRow,
    table_of,
)

#: Writes in one commit at most: bounds the time that the first of them waits for the last.
MAX_GROUP = 256
READERS = 8


Row = TypeVar("Row", bound=Base)


@dataclass(frozen=True, slots=True)
class Write:
    """One statement with its values. Statements are made once and reused: SQLAlchemy then compiles them once."""

    statement: Executable
    values: dict[str, Any]


@dataclass(slots=True)
class _Waiting:
    writes: Sequence[Write]
    done: asyncio.Future[None]


TRAJECTORIES = table_of(TrajectoryRow)
STEPS = table_of(StepRow)

INSERT_TRAJECTORY = insert(TRAJECTORIES)
INSERT_STEP = insert(STEPS)
INSERT_SCORE = insert(table_of(ScoreRow))
INSERT_REPLY = insert(table_of(ReplyRow))
#: Values: `of` (a trajectory_id) and the columns to change.
UPDATE_TRAJECTORY = update(TRAJECTORIES).where(TRAJECTORIES.c.trajectory_id == bindparam("of"))
_KNOWN = select(TRAJECTORIES.c.trajectory_id).where(TRAJECTORIES.c.trajectory_id == bindparam("of"))


def sqlite_url(path: Path) -> str:
    return f"sqlite+aiosqlite:///{path}"


class Ledger:
    """Trajectories, steps and scores. Open it with `start`, close it with `stop`."""

    def __init__(self, url: str, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._engine: AsyncEngine | None = None
        self._queue: asyncio.Queue[_Waiting | None] = asyncio.Queue()
        self._writer: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the ledger, making its tables when it is new.

        Raises:
            LedgerFault: It cannot be opened, or was made by another version.
        """
        is_sqlite = self._url.startswith("sqlite")
        options: dict[str, Any] = {"pool_size": READERS, "max_overflow": 0, "pool_timeout": 60.0}
        self._engine = create_async_engine(self._url, **options)
        if is_sqlite:
            event.listen(self._engine.sync_engine, "connect", _configure_sqlite)
        try:
            async with self._engine.begin() as connection:
                await connection.run_sync(Base.metadata.create_all)
                version = (await connection.execute(select(LedgerInfo.schema_version))).scalar()
                if version is None:
                    await connection.execute(insert(LedgerInfo).values(id=1, schema_version=SCHEMA_VERSION))
        except (SQLAlchemyError, OSError) as error:
            await self._engine.dispose()
            raise LedgerFault(
                f"The ledger cannot be opened: {error}",
                hint="Move the file aside to start an empty ledger, or restore it from a copy.",
            ) from error
        if version not in (None, SCHEMA_VERSION):
            await self._engine.dispose()
            raise LedgerFault(
                f"The ledger has version {version}; this bird-env reads version {SCHEMA_VERSION}.",
                hint="Use the bird-env that made it, or another data directory.",
            )
        self._writer = asyncio.create_task(self._write_groups(), name="ledger-writer")

    async def stop(self) -> None:
        """Commit what waits, then close; idempotent."""
        writer, self._writer = self._writer, None
        if writer is not None:
            await self._queue.put(None)
            await writer
        if self._engine is not None:
            engine, self._engine = self._engine, None
            await engine.dispose()

    # ---- writing ----

    async def write(self, *writes: Write) -> None:
        """Commit these writes together; returns when they are committed.

        Raises:
            LedgerFault: They could not be committed; nothing of them was.
        """
        if self._writer is None or self._writer.done():
            raise ShuttingDown("The ledger is closed.")
        waiting = _Waiting(writes, asyncio.get_running_loop().create_future())
        await self._queue.put(waiting)
        await asyncio.shield(waiting.done)

    async def _write_groups(self) -> None:
        while True:
            first = await self._queue.get()
            if first is None:
                return
            group, closing = [first], False
            while len(group) < MAX_GROUP and not self._queue.empty():
                following = self._queue.get_nowait()
                if following is None:
                    closing = True
                    break
                group.append(following)
            await self._commit(group)
            if closing:
                return

    async def _commit(self, group: list[_Waiting]) -> None:
        try:
            await self._commit_together(group)
        except Exception as error:  # noqa: BLE001 - every kind of failure is told to the callers that wait for the commit
            if len(group) == 1:
                fault = LedgerFault(f"The ledger could not commit: {type(error).__name__}.")
                fault.__cause__ = error
                if not group[0].done.done():
                    group[0].done.set_exception(fault)
            else:
                for waiting in group:
                    await self._commit([waiting])
            return
        for waiting in group:
            if not waiting.done.done():
                waiting.done.set_result(None)

    async def _commit_together(self, group: list[_Waiting]) -> None:
        """One transaction; a seam for tests that make commits fail."""
        async with self._opened().begin() as connection:
            for waiting in group:
                for write in waiting.writes:
                    await connection.execute(write.statement, write.values)

    # ---- reading ----

    async def knows(self, trajectory_id: str) -> bool:
        """Whether a trajectory of this id ever was."""
        try:
            async with self._opened().connect() as connection:
                return (await connection.execute(_KNOWN, {"of": trajectory_id})).first() is not None
        except SQLAlchemyError as error:
            raise LedgerFault(f"The ledger could not be read: {type(error).__name__}.") from error

    async def trajectory(self, trajectory_id: str) -> TrajectoryRow | None:
        return await self._one(select(TrajectoryRow).where(TrajectoryRow.trajectory_id == trajectory_id))

    async def trajectories(
        self,
        *,
        run_id: str | None = None,
        group_id: str | None = None,
        status: TrajectoryStatus | None = None,
        after_seq: int = 0,
        limit: int = 100,
    ) -> list[TrajectoryRow]:
        """Trajectories in the order of their creation."""
        query = select(TrajectoryRow).where(TrajectoryRow.seq > after_seq).order_by(TrajectoryRow.seq).limit(limit)
        if run_id is not None:
            query = query.where(TrajectoryRow.run_id == run_id)
        if group_id is not None:
            query = query.where(TrajectoryRow.group_id == group_id)
        if status is not None:
            query = query.where(TrajectoryRow.status == status)
        return await self._all(query)

    async def step(self, trajectory_id: str, epoch: int, step_index: int) -> StepRow | None:
        return await self._one(
            select(StepRow).where(
                StepRow.trajectory_id == trajectory_id, StepRow.epoch == epoch, StepRow.step_index == step_index
            )
        )

    async def steps(self, trajectory_id: str, *, after: tuple[int, int] = (-1, -1), limit: int = 100) -> list[StepRow]:
        """Steps in order of (epoch, step_index), later than `after`."""
        epoch, index = after
        query = (
            select(StepRow)
            .where(
                StepRow.trajectory_id == trajectory_id,
                (StepRow.epoch > epoch) | ((StepRow.epoch == epoch) & (StepRow.step_index > index)),
            )
            .order_by(StepRow.epoch, StepRow.step_index)
            .limit(limit)
        )
        return await self._all(query)

    async def stored_reply(self, key: str) -> ReplyRow | None:
        return await self._one(select(ReplyRow).where(ReplyRow.key == key))

    async def fault(self) -> str | None:
        """What keeps the ledger from taking writes, if anything does."""
        if self._writer is None or self._writer.done():
            return "the ledger's writer is not running"
        try:
            await self.count_live()
        except LedgerFault as error:
            return error.detail
        return None

    async def count_live(self) -> int:
        query = select(func.count()).where(TrajectoryRow.status == TrajectoryStatus.LIVE)
        try:
            async with self._opened().connect() as connection:
                return int((await connection.execute(query)).scalar_one())
        except SQLAlchemyError as error:
            raise LedgerFault(f"The ledger could not be read: {type(error).__name__}.") from error

    async def end_all_live(self, reason: EndReason) -> int:
        """Mark trajectories of an earlier process as ended: their replicas died with it. Returns how many."""
        ended = await self.count_live()
        if ended:
            statement = (
                update(TRAJECTORIES)
                .where(TRAJECTORIES.c.status == str(TrajectoryStatus.LIVE))
                .values(
                    status=str(TrajectoryStatus.ENDED),
                    end_reason=str(reason),
                    closed=True,
                    ended_at=self._clock.now(),
                    next_step_index=_steps_of_present_epoch(),
                )
            )
            await self.write(Write(statement, {}))
        return ended

    async def _one(self, query: Select[Row]) -> Row | None:
        found = await self._all(query)
        return found[0] if found else None

    async def _all(self, query: Select[Row]) -> list[Row]:
        """Rows as detached objects."""
        try:
            async with AsyncSession(self._opened(), expire_on_commit=False) as session:
                return list((await session.execute(query)).scalars())
        except SQLAlchemyError as error:
            raise LedgerFault(f"The ledger could not be read: {type(error).__name__}.") from error

    def _opened(self) -> AsyncEngine:
        if self._engine is None:
            raise ShuttingDown("The ledger is closed.")
        return self._engine


def _steps_of_present_epoch() -> Any:
    """How many steps a trajectory has in its epoch: while it lives, only its steps say so, not its own row."""
    return (
        select(func.coalesce(func.max(STEPS.c.step_index) + 1, 0))
        .where(STEPS.c.trajectory_id == TRAJECTORIES.c.trajectory_id, STEPS.c.epoch == TRAJECTORIES.c.epoch)
        .correlate(TRAJECTORIES)
        .scalar_subquery()
    )


def _configure_sqlite(connection: Any, _record: Any) -> None:
    """WAL, so that readers never wait for the writer; no fsync a commit: a power cut may take the last moments."""
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=5000"):
        cursor.execute(f"PRAGMA {pragma}")
        cursor.fetchall()
    cursor.close()
