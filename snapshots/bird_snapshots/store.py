"""A store: one directory on one mount, owned by one process, holding templates, their replicas and temporary files.

    <root>/owner.lock     held with flock by the process that owns the store, and naming it
    <root>/templates/     immutable, shared with importers that own nothing
    <root>/replicas/      links and WALs of this owner's replicas; a new owner removes what an old one left
    <root>/tmp/           temporary files of statements, folders of publishers

A replica does not outlive its owner: opening sweeps what was left, however the owner ended.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import apsw

from bird_snapshots.errors import SnapshotError, StoreBusy, StoreClosed, translated
from bird_snapshots.files import OS_FILES, SIDECARS, FileOps
from bird_snapshots.gate import Gate
from bird_snapshots.heap import limit_heap
from bird_snapshots.meter import SYSTEM_CLOCK, Clock
from bird_snapshots.policy import FORBIDDEN_FUNCTIONS
from bird_snapshots.replica import Replica, Workshop, make
from bird_snapshots.sql import query
from bird_snapshots.template import TemplateStore
from bird_snapshots.watchdog import Watchdog


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """What a store holds at one moment.

    Attributes:
        live: Replicas that are not released.
        served: Replicas made since it was opened, branches and resets included.
        bytes: Bytes on disk beyond the templates: WALs and temporary files.
        by_template: `(live, served)` of each template that was ever used, by digest.
    """

    live: int
    served: int
    bytes: int
    by_template: dict[str, tuple[int, int]]


class Store:
    """The replicas of one process under one root; a context manager.

    Args:
        root: Directory of the store, made where it is missing.
        engine_functions: Names of the SQL functions that the scorer's SQLite has; any other is refused. None: all.
        float_digits: Digits in which a REAL becomes text (SQLite before 3.53 used 15); None leaves them to SQLite.
        files: The file operations.
        clock: Processor time of a thread, and time on the wall.
        heap_bytes: Memory that SQLite may have in this process, for all stores; a quarter of the machine's where it was
            never set.
        gate: Where calls that compute for long take turns; one with a place for each core where left out.

    Raises:
        StoreBusy: A living process owns the store.
        StoreError: The directories cannot be made or swept.
    """

    def __init__(
        self,
        root: Path,
        *,
        engine_functions: frozenset[str] | None = None,
        float_digits: int | None = None,
        files: FileOps = OS_FILES,
        clock: Clock = SYSTEM_CLOCK,
        gate: Gate | None = None,
        heap_bytes: int | None = None,
    ) -> None:
        self._lock: int | None = None
        self.root = Path(root).absolute()
        self._files = files
        self._replicas: dict[str, Replica] = {}
        self._served: Counter[str] = Counter()
        self._guard = threading.Lock()
        self._watchdog = Watchdog()
        limit_heap(heap_bytes)
        self.templates = TemplateStore(self.root, files=files)
        self._lock = self._take()
        try:
            with translated("making the store's directories"):
                files.mkdir(self.root / "replicas")
            self._sweep()
            self._workshop = Workshop(
                files=files,
                clock=clock,
                gate=gate or Gate(),
                watchdog=self._watchdog,
                replicas=self.root / "replicas",
                temporary=self.root / "tmp",
                refused_functions=refused_functions(engine_functions),
                float_digits=float_digits,
                link=self.templates.link,
                register=self._register,
                forget=self._forget,
            )
        except BaseException:
            self.close()
            raise

    def _take(self) -> int:
        path = self.root / "owner.lock"
        with translated("locking the store"):
            lock = self._files.lock(path)
            if lock is None:
                pid = _owner(self._files.read(path, 0, 32))
                who = f"process {pid}" if pid else "another process"
                raise StoreBusy(f"the store {self.root} is owned by {who}", pid=pid)
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        return lock

    def _sweep(self) -> None:
        """Remove what earlier owners left: every replica, and temporary files that no living publisher holds."""
        with translated("sweeping the store"):
            replicas = self.root / "replicas"
            names = self._files.names(replicas)
            for name in sorted(names, key=lambda name: not name.endswith(SIDECARS)):  # main files last
                self._files.remove_tree(replicas / name)
            temporary = self.root / "tmp"
            for name in self._files.names(temporary):
                lock = self._files.lock(temporary / name)
                if lock is None:
                    continue
                try:
                    self._files.remove_tree(temporary / name)
                finally:
                    os.close(lock)

    def acquire(self, digest: str) -> Replica:
        """A replica of a template, in the template's state.

        Raises:
            TemplateMissing: There is no such template.
            StoreClosed: The store was closed.
            StoreFull, CrossDevice, LinkRefused, TooManyLinks, GuardFailed, SettingsDidNotHold: It cannot be made.
        """
        if self._lock is None:
            raise StoreClosed("the store was closed")
        return make(self._workshop, digest, None, 0, 0)

    def _register(self, replica: Replica) -> None:
        with self._guard:
            if self._lock is not None:
                self._replicas[replica.generation] = replica
                self._served[replica.digest] += 1
                return
        replica.release()
        raise StoreClosed("the store was closed")

    def _forget(self, replica: Replica) -> None:
        with self._guard:
            self._replicas.pop(replica.generation, None)

    def statistics(self) -> StoreStatistics:
        """What the store holds now. Sizes are read from the directory, so that no replica is disturbed."""
        with self._guard:
            live = Counter(replica.digest for replica in self._replicas.values())
            served = dict(self._served)
        total = 0
        for replica in list(self._replicas.values()):
            total += replica.peek_bytes()
        return StoreStatistics(
            live=sum(live.values()),
            served=sum(served.values()),
            bytes=total,
            by_template={digest: (live[digest], count) for digest, count in sorted(served.items())},
        )

    def close(self, wait_s: float | None = None) -> int:
        """Release every replica, then the store itself; a second call does nothing.

        Args:
            wait_s: How long to wait in all for running statements that SQLite cannot end; as long as they take where
                left out.

        Returns:
            How many replicas could not be released in that time. They are when their statement ends; the files of one
            whose process ends first are swept by the next owner.

        Raises:
            SnapshotError: The first of what went wrong; the store is released all the same.
        """
        with self._guard:
            lock, self._lock = self._lock, None
            replicas = list(self._replicas.values())
        if lock is None:
            return 0
        first: SnapshotError | None = None
        left = 0
        deadline = None if wait_s is None else time.monotonic() + wait_s
        for replica in replicas:
            replica.end_call()  # all at once, so that none waits behind another
        for replica in replicas:
            try:
                left += not replica.release(None if deadline is None else max(0.0, deadline - time.monotonic()))
            except SnapshotError as error:
                first = first or error
        self._watchdog.close()
        os.close(lock)
        if first is not None:
            raise first
        return left

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_lock", None) is not None:
            warnings.warn(f"the store {self.root} was not closed", ResourceWarning, source=self, stacklevel=2)


def engine_functions() -> frozenset[str]:
    """Lower-case names of every SQL function that the engine's own SQLite has."""
    connection = apsw.Connection(":memory:", statementcachesize=0)
    try:
        rows = query(connection, "SELECT DISTINCT name FROM pragma_function_list")
        return frozenset(str(row[0]).lower() for row in rows)
    finally:
        connection.close()


def refused_functions(allowed: frozenset[str] | None) -> frozenset[str]:
    """Functions of the engine that are not among the allowed ones.

    What SQLite uses internally (to rename a column, say) is in no list and stays allowed.
    """
    if allowed is None:
        return frozenset()
    names = frozenset(name.lower() for name in allowed)
    return engine_functions() - names - frozenset(name.decode() for name in FORBIDDEN_FUNCTIONS)


def _owner(data: bytes) -> int | None:
    text = data.split(b"\n", 1)[0]
    return int(text) if text.isdigit() else None
