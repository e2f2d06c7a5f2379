"""The catalogue as the running server reads it: off the event loop, and from memory while nothing has changed.

A create asks for a task, its database and its schema, a thousand times for the same few. What was found is kept until
the catalogue's revision changes, which is asked at most once a second: an import made beside the server is seen
within that. What was not found is never kept, so that something new is there at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from bird_env.errors import UnknownDatabase, UnknownTask
from bird_env.tasks import Task
from bird_server.catalogue import Catalogue, Database
from bird_server.clock import Clock
from bird_server.engine.port import Engine
from bird_snapshots.schema import SchemaObject

#: Seconds between two questions for the catalogue's revision.
REVISION_S = 1.0

T = TypeVar("T")


class Library:
    """Tasks, databases and schemas by name. Used from the event loop only."""

    def __init__(self, catalogue: Catalogue, engine: Engine, clock: Clock) -> None:
        self.catalogue = catalogue
        self._engine = engine
        self._clock = clock
        self._tasks: dict[str, Task] = {}
        self._databases: dict[str, Database] = {}
        self._schemas: dict[str, Sequence[SchemaObject]] = {}  # by digest: a template never changes
        self._revision: int | None = None
        self._asked_at: float | None = None

    async def task(self, task_id: str) -> Task:
        """A task by its id.

        Raises:
            UnknownTask: The catalogue has none.
        """
        found = await self._found(self._tasks, task_id, self.catalogue.task)
        if found is None:
            raise UnknownTask(f"No task {task_id!r}.")
        return found

    async def database(self, name: str) -> Database:
        """A database by its name.

        Raises:
            UnknownDatabase: The catalogue has none.
        """
        found = await self._found(self._databases, name, self.catalogue.database)
        if found is None:
            raise UnknownDatabase(f"No database {name!r}.")
        return found

    async def schema(self, digest: str) -> Sequence[SchemaObject]:
        """Tables and views of a template."""
        found = self._schemas.get(digest)
        if found is None:
            found = self._schemas[digest] = await self._engine.schema(digest)
        return found

    async def read(self, query: Callable[[Catalogue], T]) -> T:
        """Ask the catalogue itself, in a thread."""
        return await asyncio.to_thread(query, self.catalogue)

    async def _found(self, kept: dict[str, T], name: str, ask: Callable[[str], T | None]) -> T | None:
        """From memory, else from the catalogue; kept unless the catalogue was seen to change while it was read."""
        await self._refresh()
        if name in kept:
            return kept[name]
        revision = self._revision
        found = await asyncio.to_thread(ask, name)
        if found is not None and revision == self._revision:
            kept[name] = found
        return found

    async def _refresh(self) -> None:
        now = self._clock.monotonic()
        if self._asked_at is not None and now - self._asked_at < REVISION_S:
            return
        self._asked_at = now
        revision = await asyncio.to_thread(self.catalogue.revision)
        if revision != self._revision:
            self._revision = revision
            self._tasks.clear()
            self._databases.clear()
