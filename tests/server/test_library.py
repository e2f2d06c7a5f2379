"""The catalogue from memory: asked once, seen anew when it changed, and nothing missing is remembered."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from bird_env.errors import UnknownDatabase, UnknownTask
from bird_env.tasks import Task
from bird_server.catalogue import Catalogue, Database
from bird_server.clock import FakeClock
from bird_server.engine.port import Engine
from bird_server.library import REVISION_S, Library
from bird_snapshots.schema import SchemaObject


class Asked:
    """A catalogue and an engine that count what they are asked."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self.calls: Counter[str] = Counter()
        self.gate = threading.Event()
        self.gate.set()

    def revision(self) -> int:
        self.calls["revision"] += 1
        return self._catalogue.revision()

    def database(self, name: str) -> Database | None:
        self.calls["database"] += 1
        return self._catalogue.database(name)

    def task(self, task_id: str) -> Task | None:
        self.calls["task"] += 1
        found = self._catalogue.task(task_id)
        assert self.gate.wait(30)
        return found

    async def schema(self, template: str, *, count: bool = False) -> Sequence[SchemaObject]:
        self.calls["schema"] += 1
        return [SchemaObject(name=template, kind="table", sql="CREATE TABLE t(x)", columns=())]


def task(instance_id: str, query: str = "?") -> Task:
    return Task.from_record(
        {
            "instance_id": instance_id,
            "selected_database": "shop",
            "query": query,
            "preprocess_sql": [],
            "issue_sql": [],
            "sol_sql": ["SELECT 1"],
        }
    )


def import_beside(root: Path, *tasks: Task, digest: str = "a" * 64) -> None:
    """As a command of another process would."""
    with closing(Catalogue(root)) as other:
        other.add_database("shop", digest=digest, size_bytes=1, page_size=4096, tables=1, source="there")
        other.add_tasks(tasks, source="there")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncIterator[Asked]:
    with closing(Catalogue(tmp_path)) as catalogue:
        yield Asked(catalogue)


@pytest.fixture
def library(asked: Asked, clock: FakeClock) -> Library:
    return Library(cast("Catalogue", asked), cast("Engine", asked), clock)


async def test_what_was_found_is_asked_for_once(tmp_path: Path, library: Library, asked: Asked) -> None:
    import_beside(tmp_path, task("one"))
    for _ in range(3):
        assert (await library.task("one")).instance_id == "one"
        assert (await library.database("shop")).digest == "a" * 64
        assert [each.name for each in await library.schema("d")] == ["d"]
    assert (asked.calls["task"], asked.calls["database"], asked.calls["schema"]) == (1, 1, 1)
    assert asked.calls["revision"] == 1


async def test_what_is_missing_is_said_and_is_there_at_once_when_it_comes(tmp_path: Path, library: Library) -> None:
    with pytest.raises(UnknownTask, match="one"):
        await library.task("one")
    with pytest.raises(UnknownDatabase, match="shop"):
        await library.database("shop")
    import_beside(tmp_path, task("one"))
    assert (await library.task("one")).instance_id == "one"
    assert (await library.database("shop")).name == "shop"


async def test_an_import_beside_the_server_is_seen_within_a_second(
    tmp_path: Path, library: Library, clock: FakeClock, asked: Asked
) -> None:
    import_beside(tmp_path, task("one", "old"))
    assert (await library.task("one")).issue == "old"
    assert (await library.database("shop")).digest == "a" * 64
    import_beside(tmp_path, task("one", "new"), digest="b" * 64)
    clock.advance(REVISION_S * 0.9)
    assert (await library.task("one")).issue == "old"
    clock.advance(REVISION_S * 0.2)
    assert (await library.task("one")).issue == "new"
    assert (await library.database("shop")).digest == "b" * 64
    clock.advance(REVISION_S)
    await library.task("one")
    assert (asked.calls["task"], asked.calls["revision"]) == (2, 3)


async def test_what_was_read_while_the_catalogue_changed_is_not_kept(
    tmp_path: Path, library: Library, clock: FakeClock, asked: Asked
) -> None:
    import_beside(tmp_path, task("one", "old"))
    await library.database("shop")
    asked.gate.clear()
    slow = asyncio.create_task(library.task("one"))
    while not asked.calls["task"]:
        await asyncio.to_thread(lambda: None)
    import_beside(tmp_path, task("one", "new"))
    clock.advance(REVISION_S)
    await library.database("shop")
    asked.gate.set()
    assert (await slow).issue in {"old", "new"}
    assert (await library.task("one")).issue == "new"


async def test_the_catalogue_is_read_outside_the_event_loop(library: Library) -> None:
    assert await library.read(lambda _: threading.current_thread()) is not threading.current_thread()
