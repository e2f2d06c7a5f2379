"""The in-process adapter of the engine port: one store, a few threads, replicas in a dictionary.

For tests, notebooks and small servers. What it cannot do: outlive a statement that SQLite cannot interrupt (value
lengths are bounded for that reason), use more than one core for row-heavy results (they hold the interpreter lock),
or survive the death of its process.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bird_env.errors import BirdEnvError, InternalError, Starved, StoreFull, TrajectoryGone
from bird_server.engine.errors import translate
from bird_server.engine.port import EngineStatistics, Executed, FailedStatement
from bird_server.sql_text import first_word
from bird_snapshots.errors import SnapshotError
from bird_snapshots.execution import Execution
from bird_snapshots.failures import Outcome
from bird_snapshots.files import OS_FILES, FileOps
from bird_snapshots.limits import Limits
from bird_snapshots.meter import SYSTEM_CLOCK, Clock
from bird_snapshots.position import Position
from bird_snapshots.replica import Replica
from bird_snapshots.schema import SchemaObject
from bird_snapshots.store import Store

T = TypeVar("T")

#: SQLite wrote 15 significant digits until it learned to write the shortest text that reads back as the same number.
OLD_FLOAT_DIGITS = 15
NEW_FLOAT_DIGITS_SINCE = (3, 53, 0)


def scorer_functions() -> frozenset[str]:
    """Names of the SQL functions that the scorer's library has: the standard library's SQLite, as the evaluator's."""
    with closing(sqlite3.connect(":memory:")) as connection:
        return frozenset(name.lower() for (name,) in connection.execute("SELECT name FROM pragma_function_list"))


def scorer_float_digits() -> int | None:
    """Digits in which the scorer's library writes a REAL as text, where that is not the engine's own number."""
    return OLD_FLOAT_DIGITS if sqlite3.sqlite_version_info < NEW_FLOAT_DIGITS_SINCE else None


@dataclass(slots=True)
class _Held:
    """A replica, and the state that its last executed text left: what the next one begins from.

    Attributes:
        position: The committed state.
        pinned: The connection holds what the WAL does not, as the storage engine tells it.
        settings: A PRAGMA was set that lasts as long as the connection, such as foreign_keys.
        settled: The replica is at `position`. Not so after a fault of ours that could not be undone at once.
    """

    replica: Replica
    position: Position
    pinned: bool
    settings: bool = False
    settled: bool = True


class LocalEngine:
    """Runs SQL in threads of this process; see `bird_server.engine.port.Engine` for the contract.

    Args:
        root: Directory of the store.
        threads: Texts that run at once.
        like_scorer: Hold SQL functions and the writing of REALs to what the scorer's library does.
        files, clock: The file operations and the clocks of the store.
    """

    def __init__(
        self,
        root: Path,
        *,
        threads: int,
        like_scorer: bool = True,
        files: FileOps = OS_FILES,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._root = root
        self._like_scorer = like_scorer
        self._threads = threads
        self._files = files
        self._clock = clock
        self._pool: ThreadPoolExecutor | None = None
        self._store: Store | None = None
        self._held: dict[str, _Held] = {}
        self._making: set[str] = set()

    async def start(self) -> None:
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="sql")
        try:
            self._store = await self._run(self._make_store)
        except BaseException:
            self._pool.shutdown(wait=False)
            self._pool = None
            raise

    async def stop(self) -> None:
        pool, self._pool = self._pool, None
        store, self._store = self._store, None
        if pool is None:
            return

        def finish() -> None:
            if store is not None:
                store.close()  # ends the statements that are running, else the threads could not be waited for
            pool.shutdown(wait=True)

        await asyncio.to_thread(finish)
        self._held.clear()

    async def acquire(
        self, key: str, template: str, preprocess: Sequence[str], limits: Limits
    ) -> FailedStatement | None:
        store = self._open_store()

        def make() -> tuple[_Held, FailedStatement | None]:
            replica = store.acquire(template)
            try:
                failed = _prepare(replica, preprocess, limits)
                return _Held(replica, replica.position, replica.pinned), failed
            except BaseException:
                replica.release()
                raise

        if key in self._held or key in self._making:
            raise InternalError(f"The replica key {key} is in use.")
        self._making.add(key)
        try:
            self._held[key], failed = await self._run(make)
        finally:
            self._making.discard(key)
        return failed

    async def execute(self, key: str, text: str, limits: Limits) -> Executed:
        held = self._held.get(key)
        if held is None:
            raise InternalError(f"The engine holds no replica {key}.")
        asked = time.perf_counter()

        def run() -> Executed:
            queue_ms = (time.perf_counter() - asked) * 1e3
            return Executed(_execute(held, text, limits), queue_ms)

        return await self._run(run)

    async def release(self, key: str) -> None:
        held = self._held.pop(key, None)
        if held is not None and self._pool is not None:
            await self._run(held.replica.release)

    async def schema(self, template: str, *, count: bool = False) -> list[SchemaObject]:
        store = self._open_store()
        return await self._run(lambda: store.templates.schema(template, count=count))

    def statistics(self) -> EngineStatistics:
        found = self._open_store().statistics()
        return EngineStatistics(
            live=found.live,
            served=found.served,
            disk_bytes=found.bytes,
            live_by_template={digest: live for digest, (live, _) in found.by_template.items()},
            served_by_template={digest: served for digest, (_, served) in found.by_template.items()},
        )

    def _make_store(self) -> Store:
        return Store(
            self._root,
            engine_functions=scorer_functions() if self._like_scorer else None,
            float_digits=scorer_float_digits() if self._like_scorer else None,
            files=self._files,
            clock=self._clock,
        )

    def _open_store(self) -> Store:
        if self._store is None:
            raise InternalError("The engine is not running.")
        return self._store

    async def _run(self, work: Callable[[], T]) -> T:
        if self._pool is None:
            raise InternalError("The engine is not running.")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except SnapshotError as error:
            raise translate(error) from error


def _prepare(replica: Replica, preprocess: Sequence[str], limits: Limits) -> FailedStatement | None:
    """Run a task's preprocess_sql as the official evaluator does: each element committed, to the first that fails."""
    for index, text in enumerate(preprocess):
        execution = replica.execute(text, limits)
        if execution.outcome is Outcome.OK and execution.in_transaction:
            execution = replica.execute("COMMIT", limits)
        if execution.outcome is not Outcome.OK:
            if execution.outcome is Outcome.STARVED:
                raise Starved("There was no processor for the statements that make the database ready.")
            if execution.in_transaction:
                replica.execute("ROLLBACK", limits)
            return FailedStatement(index, execution.error.message if execution.error else str(execution.outcome))
    return None


def _execute(held: _Held, text: str, limits: Limits) -> Execution:
    """Run a text; a fault of ours leaves the replica at its last state before it, or says what is lost."""
    if not held.settled:
        _put_back(held, InternalError("An earlier fault left this replica beyond its last acknowledged step."))
    try:
        execution = held.replica.execute(text, limits)
    except SnapshotError as error:
        fault = translate(error)
        if not (isinstance(fault, StoreFull) and _unmoved(held)):  # after any other the connection is not trusted
            _put_back(held, fault)
        raise
    if execution.outcome is Outcome.STARVED:
        starved = Starved(
            f"The step took {execution.elapsed_ms / 1e3:.1f} s of wall time, "
            f"{execution.cpu_ms / 1e3:.1f} s of it on a processor."
        )
        if not (_one_read(execution) or _unmoved(held)):
            _put_back(held, starved)
        raise starved
    held.position, held.pinned = execution.position, execution.pinned
    held.settings = held.settings or _sets_pragma(execution)
    return execution


def _one_read(execution: Execution) -> bool:
    """A single statement that cannot change a database: ended early, it has not changed the connection either."""
    return len(execution.statements) == 1 and execution.statements[0].readonly is True


def _unmoved(held: _Held) -> bool:
    """Whether nothing of the failed text needs to be undone, so that the connection can go on with all it holds."""
    return not held.pinned and not held.replica.pinned and held.replica.position == held.position


def _sets_pragma(execution: Execution) -> bool:
    """Whether a text set a PRAGMA: one that only reads has a result, one that writes the database stays in the WAL."""
    return any(
        each.outcome is Outcome.OK and each.readonly and not each.columns and first_word(each.sql) == "pragma"
        for each in execution.statements
    )


def _put_back(held: _Held, fault: BirdEnvError) -> None:
    """Put the replica back to where the step began, so that a retry of the step runs on what it should.

    A new connection has the committed state and nothing else: where there was more, that is lost, and said.

    Raises:
        TrajectoryGone: The trajectory cannot go on.
        SnapshotError: It cannot be done now; whatever comes next tries again first.
    """
    if held.pinned or held.settings:
        what = "The open transaction or TEMP objects" if held.pinned else "The PRAGMAs"
        raise TrajectoryGone(
            f"{fault.detail} {what} of this trajectory are lost with it.", end_reason="fault"
        ) from fault
    held.settled = False
    fresh = held.replica.branch(held.position)
    old, held.replica, held.position, held.settled = held.replica, fresh, fresh.position, True
    old.release()
