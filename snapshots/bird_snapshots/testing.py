"""What tests of the engine, and of what is built on it, need: faults on demand, and proofs that nothing was touched.

* `FaultyFiles`: file operations that fail when told to, and count what was asked of them.
* `SteppedClock`: processor and wall time that move only when told to, or by a step at each look.
* `assert_template_untouched`: the bytes of a template before and after a block.
* `Reference` and `assert_same`: the same statements on a private copy under stock SQLite, compared one by one.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from bird_snapshots.connect import LIMITS, open_private
from bird_snapshots.execution import Execution
from bird_snapshots.files import OS_FILES, FileOps
from bird_snapshots.limits import DEFAULT_LIMITS, Limits
from bird_snapshots.meter import Clock
from bird_snapshots.replica import Replica
from bird_snapshots.rows import Row
from bird_snapshots.sql import query
from bird_snapshots.template import TemplateStore


class FaultyFiles(FileOps):
    """File operations of which one fails, once or always.

    Args:
        operation: Name of the method that fails; '' for none.
        error: The errno it fails with.
        at: Which of its calls fails, from 1; 0 for every one.
        after: Whether what was asked for is done before the failure is reported, as when a disk fails late.
    """

    def __init__(self, operation: str = "", error: int = errno.ENOSPC, *, at: int = 1, after: bool = False) -> None:
        self.operation, self.error, self.at, self.after = operation, error, at, after
        self.calls: Counter[str] = Counter()

    def _do(self, operation: str, *arguments: Any) -> Any:
        self.calls[operation] += 1
        fails = operation == self.operation and self.at in (0, self.calls[operation])
        result = None if fails and not self.after else getattr(OS_FILES, operation)(*arguments)
        if fails:
            if operation == "lock" and result is not None:
                os.close(result)
            raise OSError(self.error, os.strerror(self.error), str(arguments[0]))
        return result

    def link(self, source: Path, target: Path) -> None:
        self._do("link", source, target)

    def unlink(self, path: Path) -> None:
        self._do("unlink", path)

    def rename(self, source: Path, target: Path) -> None:
        self._do("rename", source, target)

    def mkdir(self, path: Path) -> None:
        self._do("mkdir", path)

    def remove_tree(self, path: Path) -> None:
        self._do("remove_tree", path)

    def names(self, directory: Path) -> list[str]:
        found: list[str] = self._do("names", directory)
        return found

    def stat(self, path: Path) -> os.stat_result:
        found: os.stat_result = self._do("stat", path)
        return found

    def read(self, path: Path, offset: int, length: int) -> bytes:
        return bytes(self._do("read", path, offset, length))

    def write_at(self, path: Path, offset: int, data: bytes) -> None:
        self._do("write_at", path, offset, data)

    def copy(self, source: Path, target: Path, length: int | None = None) -> None:
        self._do("copy", source, target, length)

    def sync(self, path: Path) -> None:
        self._do("sync", path)

    def sha256(self, path: Path) -> str:
        return str(self._do("sha256", path))

    def free_bytes(self, path: Path) -> int:
        return int(self._do("free_bytes", path))

    def lock(self, path: Path) -> int | None:
        found: int | None = self._do("lock", path)
        return found


class SteppedClock:
    """Processor and wall time under the control of a test.

    Args:
        cpu_step_s, wall_step_s: How far each look at a clock moves it.
    """

    def __init__(self, *, cpu_step_s: float = 0.0, wall_step_s: float = 0.0) -> None:
        self.cpu_s = self.wall_s = 0.0
        self.cpu_step_s, self.wall_step_s = cpu_step_s, wall_step_s
        self.clock = Clock(
            thread_time=self._thread_time,
            monotonic=self._monotonic,
            observer=lambda: lambda: (self.cpu_s, self.wall_s),  # who only watches moves nothing
        )

    def _thread_time(self) -> float:
        self.cpu_s += self.cpu_step_s
        return self.cpu_s

    def _monotonic(self) -> float:
        self.wall_s += self.wall_step_s
        return self.wall_s


@contextmanager
def assert_template_untouched(templates: TemplateStore, digest: str) -> Generator[None]:
    """The template's file has the same bytes, inode and modification time after the block, and its hash is its name."""
    path = templates.get(digest).path
    before = path.stat()
    if OS_FILES.sha256(path) != digest:
        raise AssertionError(f"template {digest} was damaged before")
    yield
    after = path.stat()
    if OS_FILES.sha256(path) != digest:
        raise AssertionError(f"template {digest} was changed")
    for name in ("st_ino", "st_size", "st_mtime_ns", "st_mode"):
        if getattr(before, name) != getattr(after, name):
            raise AssertionError(f"{name} of template {digest} went from {before} to {after}")


@dataclass(frozen=True, slots=True)
class Observed:
    """What one statement showed: its rows, or its error, and what it did to the connection."""

    rows: list[Row]
    error: str | None
    changes: int | None
    in_transaction: bool


class Reference:
    """A private copy of a template under stock SQLite: a rollback journal, the standard VFS, none of our settings.

    Only SQLite's limits are the replica's, so that what is too much is so for both.

    Args:
        template: The file to copy.
        path: Where to copy it to.
    """

    def __init__(self, template: Path, path: Path) -> None:
        OS_FILES.copy(template, path)
        self.connection = open_private(path)
        query(self.connection, "PRAGMA journal_mode=DELETE")
        for limit, value in LIMITS.items():
            self.connection.limit(limit, value)

    def run(self, statement: str) -> Observed:
        """Run one statement. `changes` is None for one that counts none."""
        rows: list[Row] = []
        error: str | None = None
        before = self.connection.total_changes()
        try:
            rows = query(self.connection, statement)
        except apsw.Error as problem:
            error = str(problem)
        counted = self.connection.total_changes() != before
        changes = self.connection.changes() if counted else None
        return Observed(rows, error, changes, self.connection.in_transaction)

    def close(self) -> None:
        self.connection.close()


def observed(execution: Execution) -> Observed:
    """The same of one statement on a replica."""
    error = None if execution.error is None else execution.error.message
    rows = execution.statements[-1].rows if execution.statements else []
    counted = execution.rowcount if execution.rowcount else None
    return Observed(rows, error, counted, execution.in_transaction)


def assert_same(
    replica: Replica, reference: Reference, statements: Iterable[str], limits: Limits = DEFAULT_LIMITS
) -> int:
    """Run statements one by one on a replica and on its reference; every one must show the same.

    Returns:
        How many were run.
    """
    count = 0
    for statement in statements:
        expected, found = reference.run(statement), observed(replica.execute(statement, limits))
        if expected.changes is None or found.changes is None:  # changes by triggers alone are counted by neither
            expected = Observed(expected.rows, expected.error, None, expected.in_transaction)
            found = Observed(found.rows, found.error, None, found.in_transaction)
        if expected != found:
            raise AssertionError(f"statement {count}, {statement!r}: stock {expected}, replica {found}")
        count += 1
    return count
