"""The private directory of one scoring, and the database file in it.

    <root>/                                  working directory of the tests, as the evaluator's own directory is
    <root>/sqlite_databases_test/<db>/<db>.sqlite
    <root>/tmp/                              TMPDIR and SQLite's temporary files
    <root>/.<random>/0, 1, …                 copies that wait for a reset

Every copy is made before anything of the task runs: afterwards the child needs no access to the source, and a reset is
a rename, which costs nothing and cannot run out of space. The source is a descriptor, opened before the child gets a
view of the file system of its own. What it leaves out: removing the directory (`zygote`).
"""

from __future__ import annotations

import os
import re
import sqlite3
from pathlib import Path
from typing import Any

#: The folder of temporary files in the private directory.
TEMPORARY_NAME = "tmp"
#: First bytes of a SQLite file; an empty file is an empty database.
_MAGIC = b"SQLite format 3\0"
_SAFE_NAME = re.compile(r"[A-Za-z0-9_.\- ]{1,100}")
#: With less room than this left, "disk full" is the machine's fault and not the statement's.
_STARVED_BYTES = 1 << 20
#: Bytes for one call that copies within the kernel.
_PIECE = 1 << 30
_DISK_ERRORS = frozenset({"SQLITE_FULL", "SQLITE_IOERR"})


class WorkspaceError(Exception):
    """The private copy could not be made: a fault of the machine or of the source, never a verdict."""


def open_source(path: Path) -> int:
    """A descriptor of a database to copy.

    Raises:
        WorkspaceError: It cannot be read, or is no SQLite file.
    """
    try:
        with path.open("rb", buffering=0) as stream:
            head = stream.read(len(_MAGIC))
            source = os.dup(stream.fileno())
    except OSError as error:
        raise WorkspaceError(f"the database cannot be read: {error.strerror or error}") from error
    if head not in (b"", _MAGIC):
        os.close(source)
        raise WorkspaceError("the database is not a SQLite file")
    return source


class PrivateWorkspace:
    """One database file of one scoring, with the resets that the official flow makes.

    Args:
        root: The private directory, empty.
        name: The database's name in the record; anything that is no plain file name becomes "database".
        source: A descriptor of the immutable file to copy; closed here.
        copies: Files to make: one, and another for each reset to come.
        shared_disk: Whether others can fill the disk: else a full one is full of what this scoring has written.

    Raises:
        WorkspaceError: The source cannot be read, or there is no room for the copies.
    """

    def __init__(self, root: Path, name: Any, source: int, *, copies: int, shared_disk: bool = True) -> None:
        self._root = root
        self._owner = os.getpid()
        self._shared_disk = shared_disk
        safe = name if isinstance(name, str) and _SAFE_NAME.fullmatch(name) and name.strip(". ") else "database"
        folder = f"sqlite_databases_test/{safe}"
        self.db_path = f"./{folder}/{safe}.sqlite"
        self._file = root / folder / f"{safe}.sqlite"
        self.temporary = root / TEMPORARY_NAME
        self.starved = False
        self._waiting: list[Path] = []
        try:
            self._file.parent.mkdir(parents=True)
            self.temporary.mkdir()
            _copy(source, self._file)
            if copies > 1:
                shelf = root / f".{os.urandom(8).hex()}"
                shelf.mkdir()
                self._waiting = [shelf / str(number) for number in range(copies - 1)]
                for path in self._waiting:
                    _copy(source, path)
        except OSError as error:
            raise WorkspaceError(f"no private copy of the database: {error.strerror or error}") from error
        finally:
            os.close(source)

    @property
    def file(self) -> str:
        return str(self._file)

    def reset(self) -> None:
        """A fresh copy in place of the file; open connections stay on the file that was there.

        Raises:
            WorkspaceError: No copy is left: more resets than were asked for.
        """
        if os.getpid() != self._owner:  # a test has forked and runs on in both processes: the files are the first one's
            return
        if not self._waiting:
            raise WorkspaceError("no copy is left for another reset")
        for suffix in ("-wal", "-shm", "-journal", ""):
            Path(f"{self._file}{suffix}").unlink(missing_ok=True)
        self._waiting.pop(0).rename(self._file)

    def observe(self, error: Exception) -> None:
        """Look at a statement's error: a full disk under us is remembered as `starved`."""
        name = getattr(error, "sqlite_errorname", "") if isinstance(error, sqlite3.Error) else ""
        if self._shared_disk and any(name.startswith(known) for known in _DISK_ERRORS):
            room = os.statvfs(self._root)
            self.starved = self.starved or room.f_bavail * room.f_frsize < _STARVED_BYTES


def _copy(source: int, target: Path) -> None:
    copy = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        done = 0
        while sent := os.sendfile(copy, source, done, _PIECE):
            done += sent
    finally:
        os.close(copy)
