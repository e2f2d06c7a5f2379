"""The in-process adapter of the engine port: one store, a few threads, replicas in a dictionary.

For tests, notebooks and small servers. A text that computes for long gives its place to the next one and takes turns
with other long ones (`bird_snapshots.gate`), so that short texts do not wait behind runaways.

What it cannot do: end one row of a statement that SQLite cannot interrupt (value lengths are bounded for that reason;
`stop` does not wait for it, but Python does before the process ends, unless it ends by os._exit), use more than one
core for row-heavy results (they hold the interpreter lock), or survive the death of its process.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bird_env.errors import BirdEnvError, InternalError, ShuttingDown, Starved, StoreFull, TrajectoryGone
from bird_server.engine.errors import translate
from bird_server.engine.places import GiveBack, Places
from bird_server.engine.port import EngineStatistics, Executed, FailedStatement
from bird_snapshots.errors import SnapshotError
from bird_snapshots.execution import Execution
from bird_snapshots.failures import Outcome
from bird_snapshots.files import OS_FILES, FileOps
from bird_snapshots.gate import Gate
from bird_snapshots.limits import Limits
from bird_snapshots.meter import SYSTEM_CLOCK, Clock
from bird_snapshots.position import Position
from bird_snapshots.replica import Replica
from bird_snapshots.schema import SchemaObject
from bird_snapshots.store import Store

log = logging.getLogger("bird_server")

T = TypeVar("T")

#: Threads for texts that have become long, beyond those that run at once. One costs little while it waits for its turn.
SPARE_THREADS = 64

#: Seconds that statements have to end after `stop` has interrupted them; one that SQLite cannot end is left behind.
STOP_S = 2.0

#: Seconds for what has ended to come back, beyond those.
_ANSWER_S = 0.1

#: Characters of a text that was left behind which are told.
_TOLD_CHARS = 200

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
        threads: Texts that run at once, not counting those that have become long.
        like_scorer: Hold SQL functions and the writing of REALs to what the scorer's library does.
        heap_bytes: Memory that SQLite may have in this process; a quarter of the machine's where left out.
        files, clock, gate: The file operations, the clocks and the gate of the store.
        stop_s: Seconds that running statements have to end when the engine stops.
    """

    def __init__(
        self,
        root: Path,
        *,
        threads: int,
        like_scorer: bool = True,
        heap_bytes: int | None = None,
        files: FileOps = OS_FILES,
        clock: Clock = SYSTEM_CLOCK,
        gate: Gate | None = None,
        stop_s: float = STOP_S,
    ) -> None:
        self._root = root
        self._like_scorer = like_scorer
        self._threads = threads
        self._files = files
        self._clock = clock
        self._gate = gate
        self._heap_bytes = heap_bytes
        self._stop_s = stop_s
        self._unfinished: list[str] = []
        self._places: Places | None = None
        self._store: Store | None = None
        self._held: dict[str, _Held] = {}
        self._making: set[str] = set()

    async def start(self) -> None:
        self._places = Places(self._threads, SPARE_THREADS, "sql")
        try:
            self._store = await self._run("opening the store", lambda _: self._make_store())
        except BaseException:
            self._places.close(_stopping(), self._stop_s)
            self._places = None
            raise

    async def stop(self) -> None:
        places, self._places = self._places, None
        store, self._store = self._store, None
        if places is None:
            return

        def finish() -> None:
            places.refuse(_stopping())
            try:
                if store is not None:
                    store.close(self._stop_s)  # ends the statements that are running, else they could not be waited for
            finally:
                self._unfinished = list(places.close(_stopping(), _ANSWER_S))

        await asyncio.to_thread(finish)
        self._held.clear()
        for name in self._unfinished:
            log.warning("a statement could not be ended and is left behind: %s", name)

    def unfinished(self) -> list[str]:
        """What `stop` had to leave running: keys and the beginnings of texts."""
        return list(self._unfinished)

    async def acquire(
        self, key: str, template: str, preprocess: Sequence[str], limits: Limits
    ) -> FailedStatement | None:
        store = self._open_store()

        def make(give_back: GiveBack) -> tuple[_Held, FailedStatement | None]:
            replica = store.acquire(template)
            try:
                failed = _prepare(replica, preprocess, limits, give_back)
                return _Held(replica, replica.position, replica.pinned), failed
            except BaseException:
                replica.release()
                raise

        if key in self._held or key in self._making:
            raise InternalError(f"The replica key {key} is in use.")
        self._making.add(key)
        try:
            self._held[key], failed = await self._run(f"making {key}", make)
        finally:
            self._making.discard(key)
        return failed

    async def execute(self, key: str, text: str, limits: Limits) -> Executed:
        held = self._held.get(key)
        if held is None:
            raise InternalError(f"The engine holds no replica {key}.")
        asked = time.perf_counter()

        def run(give_back: GiveBack) -> Executed:
            queue_ms = (time.perf_counter() - asked) * 1e3
            execution = _execute(held, text, limits, give_back)
            return Executed(execution, queue_ms + execution.parked_ms)

        return await self._run(f"{key}: {text[:_TOLD_CHARS]}", run)

    async def release(self, key: str) -> None:
        held = self._held.pop(key, None)
        if held is not None and self._places is not None:
            await self._run(f"releasing {key}", lambda _: held.replica.release())

    async def schema(self, template: str, *, count: bool = False) -> list[SchemaObject]:
        store = self._open_store()
        return await self._run("reading a schema", lambda _: store.templates.schema(template, count=count))

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
            gate=self._gate,
            heap_bytes=self._heap_bytes,
        )

    def _open_store(self) -> Store:
        if self._store is None:
            raise InternalError("The engine is not running.")
        return self._store

    async def _run(self, name: str, work: Callable[[GiveBack], T]) -> T:
        if self._places is None:
            raise InternalError("The engine is not running.")
        try:
            return await asyncio.wrap_future(self._places.submit(name, work))
        except SnapshotError as error:
            raise translate(error) from error


def _stopping() -> ShuttingDown:
    return ShuttingDown("The engine was stopped.")


def _prepare(
    replica: Replica, preprocess: Sequence[str], limits: Limits, on_long: Callable[[], None]
) -> FailedStatement | None:
    """Run a task's preprocess_sql as the official evaluator does: each element committed, to the first that fails."""
    for index, text in enumerate(preprocess):
        execution = replica.execute(text, limits, on_long=on_long)
        if execution.outcome is Outcome.OK and execution.in_transaction:
            execution = replica.execute("COMMIT", limits)
        if execution.outcome is not Outcome.OK:
            if execution.outcome is Outcome.STARVED:
                raise Starved("There was no processor for the statements that make the database ready.")
            if execution.in_transaction:
                replica.execute("ROLLBACK", limits)
            return FailedStatement(index, execution.error.message if execution.error else str(execution.outcome))
    return None


def _execute(held: _Held, text: str, limits: Limits, on_long: Callable[[], None]) -> Execution:
    """Run a text; a fault of ours leaves the replica at its last state before it, or says what is lost."""
    if not held.settled:
        _put_back(held, InternalError("An earlier fault left this replica beyond its last acknowledged step."))
    try:
        execution = held.replica.execute(text, limits, on_long=on_long)
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
    held.settings = held.settings or execution.pragma_set
    return execution


def _one_read(execution: Execution) -> bool:
    """A single statement that cannot change a database: ended early, it has not changed the connection either."""
    return execution.statements_seen == 1 and execution.statements[0].readonly is True


def _unmoved(held: _Held) -> bool:
    """Whether nothing of the failed text needs to be undone, so that the connection can go on with all it holds."""
    return not held.pinned and not held.replica.pinned and held.replica.position == held.position


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
