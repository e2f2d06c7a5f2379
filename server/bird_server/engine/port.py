"""The engine port: what holds replicas and runs SQL, whatever the process it does so in.

A replica is named by a key of the caller's, one per (trajectory, epoch), so that a reset makes the new one before the
old one is given up. Every adapter runs the same contract suite. Time spent waiting for the engine is told apart from
time spent in SQL: only the latter counts against a policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bird_snapshots.execution import Execution
from bird_snapshots.limits import Limits
from bird_snapshots.schema import SchemaObject


@dataclass(frozen=True, slots=True)
class Executed:
    """One executed text: SQLite's account of it, and the milliseconds it waited for a thread or for a processor."""

    execution: Execution
    queue_ms: float


@dataclass(frozen=True, slots=True)
class FailedStatement:
    """Which of a list of statements failed, from 0, and why, in SQLite's words."""

    index: int
    message: str


@dataclass(frozen=True, slots=True)
class EngineStatistics:
    """What the engine holds: live replicas, replicas made since the start, bytes beyond templates, live by template."""

    live: int
    served: int
    disk_bytes: int
    live_by_template: dict[str, int] = field(default_factory=dict[str, int])
    served_by_template: dict[str, int] = field(default_factory=dict[str, int])


class Engine(Protocol):
    """Holds replicas by key and runs SQL on them, one text at a time for each key."""

    async def start(self) -> None:
        """Take the store. Raises a ServiceError where another process has it."""
        ...

    async def stop(self) -> None:
        """Release every replica and the store; idempotent. Takes a few seconds at most."""
        ...

    def unfinished(self) -> list[str]:
        """What `stop` could not end and left running, for people; then only the end of the process ends it."""
        ...

    async def acquire(
        self, key: str, template: str, preprocess: Sequence[str], limits: Limits
    ) -> FailedStatement | None:
        """Make a replica of the template (a sha256) under a new key, with `preprocess` already run on it.

        Returns:
            The statement of `preprocess` that failed, if one did: those before it stand, those after it did not run.

        Raises:
            StoreFull: No disk or descriptors for it.
            UnknownDatabase: The store has no such template.
        """
        ...

    async def execute(self, key: str, text: str, limits: Limits) -> Executed:
        """Run one text.

        Raises:
            Starved: The wall clock ran out while the processor was elsewhere; the replica is as it was before.
            StoreFull: The disk filled up; the replica is as it was before.
            TrajectoryGone: As the two above, but the replica held an open transaction or TEMP objects that are lost.
        """
        ...

    async def release(self, key: str) -> None:
        """Drop a replica and its files; unknown keys are nothing."""
        ...

    async def schema(self, template: str, *, count: bool = False) -> list[SchemaObject]:
        """Tables and views of a template; with `count`, with their numbers of rows."""
        ...

    def statistics(self) -> EngineStatistics: ...
