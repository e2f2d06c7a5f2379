"""From any SQLite file to the bytes of a template, leaving the file and its directory as they were.

A copy is made page by page with SQLite's backup API, so that rows keep their order (verdicts depend on it), free
pages stay free and page size, encoding, reserved bytes and counters are kept. A file with a journal or a WAL beside it
is first copied with them and recovered there by SQLite, so that nothing committed is lost. The header is then set as
`format.canonical_header` says, which makes the result a function of the content: publishing it again changes nothing.

A file of 0 bytes is a legal, empty database and becomes one. What `quick_check` finds wrong with the structure refuses
the file; rows that break a NOT NULL, CHECK or type constraint are the database's own affair: SQLite reads them so.
"""

from __future__ import annotations

import math
import re
import stat
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import apsw

from bird_snapshots.connect import open_private, open_source
from bird_snapshots.errors import (
    CorruptDatabase,
    EncryptedDatabase,
    NotADatabase,
    SnapshotError,
    SourceChanged,
    SourceMissing,
    SourceUnreadable,
    StoreFull,
    TruncatedDatabase,
    translated,
)
from bird_snapshots.files import FileOps, sidecar
from bird_snapshots.format import HEADER_BYTES, MAGIC, WAL_FORMAT, FormatError, canonical_header, parse_database_header
from bird_snapshots.sql import pragma, query

#: Messages of quick_check about what a row holds, not about how the file is built.
_ABOUT_CONTENT = re.compile(r"(NULL|NUMERIC|TEXT|non-\w+) value in |CHECK constraint failed in ")
_MESSAGES = 20

#: Files beside a database that hold a part of what is committed, or that undo what is not.
_BESIDE = ("-wal", "-journal")

_KNOWN_STARTS: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", "It is a Git LFS pointer: fetch the file itself with `git lfs pull`."),
    (b"\x1f\x8b", "It is gzip-compressed: unpack it first."),
    (b"PK\x03\x04", "It is a zip archive: unpack it first."),
    (b"BZh", "It is bzip2-compressed: unpack it first."),
    (b"\xfd7zXZ\0", "It is xz-compressed: unpack it first."),
    (b"\x28\xb5\x2f\xfd", "It is zstd-compressed: unpack it first."),
    (b"DUCK", "It is a DuckDB database."),
    (
        b"** This file contains an SQLite 2",
        "It is a SQLite 2 database: convert it with `sqlite OLD .dump | sqlite3 NEW`.",
    ),
    (b"PGDMP", "It is a PostgreSQL dump."),
    (b"{", "It is JSON, not a database."),
    (b"<", "It is HTML or XML, not a database: was it downloaded from a page that asks for a login?"),
)
_SQL_WORDS = re.compile(rb"\s*(--|/\*|PRAGMA\b|BEGIN\b|CREATE\b|INSERT\b|DROP\b)", re.IGNORECASE)


def stage(source: Path, folder: Path, files: FileOps) -> Path:
    """Make the bytes of a template from a source, in a folder of its own.

    Args:
        source: Any SQLite file.
        folder: An empty folder that is removed afterwards, whatever happens.
        files: The file operations.

    Returns:
        The staged file, checked and synced, in `folder`.

    Raises:
        SourceError: It cannot become a template; the class says why.
        StoreError: The store has no room, or refuses.
    """
    before = _look_at(source)
    found = source.resolve()
    beside = [suffix for suffix in _BESIDE if _size(sidecar(found, suffix))]
    if before.size and not beside:
        _check_header(source, _first_bytes(source, found), before.size)
    target = folder / "template.db"
    try:
        if beside:
            readable = _copied_with(found, beside, folder, files)
            _recover(readable, source)
        else:
            readable = found
        _back_up(readable, target, source, ours=bool(beside))
        _make_canonical(readable, target, files)
        if before != _look_at(source):
            raise SourceChanged(f"{source} changed while it was read", path=source)
        _check_structure(target, source)
    except apsw.Error as error:
        raise _source_fault(error, source) from error
    with translated("syncing a template"):
        files.sync(target)
    return target


def _look_at(source: Path) -> _Identity:
    try:
        found = source.stat()
    except FileNotFoundError as error:
        raise SourceMissing(f"{source} does not exist", path=source) from error
    except OSError as error:
        raise SourceUnreadable(f"{source}: {error.strerror}", path=source) from error
    if not stat.S_ISREG(found.st_mode):
        kind = "a directory" if stat.S_ISDIR(found.st_mode) else "not a regular file"
        raise SourceUnreadable(f"{source} is {kind}", path=source)
    return _Identity(found.st_size, _marks(source.resolve()))


@dataclass(frozen=True, slots=True)
class _Identity:
    """What changes when somebody writes to a database or to what lies beside it."""

    size: int
    marks: tuple[tuple[int, int, int, int] | None, ...]


def _marks(found: Path) -> tuple[tuple[int, int, int, int] | None, ...]:
    marks: list[tuple[int, int, int, int] | None] = []
    for suffix in ("", *_BESIDE):
        try:
            seen = sidecar(found, suffix).stat()
            marks.append((seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns))
        except OSError:
            marks.append(None)
    return tuple(marks)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _first_bytes(source: Path, found: Path) -> bytes:
    try:
        with found.open("rb") as file:
            return file.read(4096)
    except OSError as error:
        raise SourceUnreadable(f"{source}: {error.strerror}", path=source) from error


def _check_header(source: Path, head: bytes, size: int) -> None:
    """Say what a file is that SQLite would only call "not a database"."""
    if not head.startswith(MAGIC):
        hint = next((hint for start, hint in _KNOWN_STARTS if head.startswith(start)), None)
        if hint is None and _SQL_WORDS.match(head):
            hint = "It is a script: make the database with `sqlite3 NEW.db < SCRIPT`."
        if hint is None and size % 512 == 0 and _looks_random(head):
            raise EncryptedDatabase(f"{source} has no SQLite header and looks encrypted", path=source)
        raise NotADatabase(f"{source} is not a SQLite database", path=source, hint=hint)
    try:
        header = parse_database_header(head)
    except FormatError as error:
        kind = TruncatedDatabase if size < HEADER_BYTES else CorruptDatabase
        raise kind(f"{source}: {error}", path=source) from error
    pages = header.counted_pages
    if pages is not None and pages * header.page_size > size:
        raise TruncatedDatabase(
            f"{source} has {size} bytes of the {pages * header.page_size} that its header names", path=source
        )


def _looks_random(data: bytes) -> bool:
    """Whether bytes are spread as evenly as encrypted ones: at least 7 bits of entropy a byte, for their number."""
    counts = Counter(data)
    entropy = -sum(count / len(data) * math.log2(count / len(data)) for count in counts.values())
    return entropy > min(7.0, math.log2(len(data)) * 0.9)


def _copied_with(found: Path, beside: list[str], folder: Path, files: FileOps) -> Path:
    """A copy of a database and of what lies beside it, where SQLite may recover it."""
    copy = folder / "source.db"
    with translated("copying a database with its journal"):
        for suffix in (*beside, ""):
            files.copy(sidecar(found, suffix), sidecar(copy, suffix))
    return copy


def _recover(copy: Path, source: Path) -> None:
    """Let SQLite roll a hot journal back, or a WAL in, and leave one file."""
    connection = open_private(copy)
    try:
        query(connection, "SELECT count(*) FROM sqlite_schema")
        query(connection, "PRAGMA wal_checkpoint(TRUNCATE)")
    except apsw.Error as error:
        raise _source_fault(error, source) from error
    finally:
        connection.close()


def _back_up(readable: Path, target: Path, source: Path, *, ours: bool) -> None:
    with readable.open("rb") as file:
        head = file.read(HEADER_BYTES)
    # A reader of a file in WAL format makes files beside it, unless told that nobody writes: that is checked later.
    reader = open_source(readable, immutable=ours or head[18:19] == bytes((WAL_FORMAT,)))
    try:
        writer = open_private(target)
        try:
            pragma(writer, "journal_mode", "OFF")
            if not head:
                query(writer, "VACUUM")  # an empty file has no page; a template needs its first
            else:
                with writer.backup("main", reader, "main") as backup:
                    while not backup.done:
                        backup.step(-1)  # all pages under one lock: step by step a writer would restart it
        finally:
            writer.close()
    finally:
        reader.close()


def _make_canonical(readable: Path, target: Path, files: FileOps) -> None:
    with translated("writing a template"):
        copied = files.read(target, 0, HEADER_BYTES)
        original = files.read(readable, 0, HEADER_BYTES)
        files.write_at(target, 0, canonical_header(copied, original or copied))


def _check_structure(target: Path, source: Path) -> None:
    connection = open_source(target, immutable=True)
    try:
        messages = [str(row[0]) for row in query(connection, "PRAGMA quick_check(1000)")]
    finally:
        connection.close()
    damage = [line for text in messages if text != "ok" for line in text.splitlines() if not _ABOUT_CONTENT.match(line)]
    if damage:
        shown = tuple(damage[:_MESSAGES])
        raise CorruptDatabase(f"{source} is damaged: {shown[0]}", path=source, messages=shown)


def _source_fault(error: apsw.Error, source: Path) -> SnapshotError:
    if isinstance(error, apsw.NotADBError):
        return NotADatabase(f"{source} is not a SQLite database", path=source)
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return SourceChanged(f"{source} is being written to: {error}", path=source)
    if isinstance(error, apsw.FullError):  # only the copy is ever written
        return StoreFull(f"copying {source}: {error}")
    if isinstance(error, apsw.IOError | apsw.CantOpenError | apsw.PermissionsError | apsw.ReadOnlyError):
        return SourceUnreadable(f"{source} cannot be read: {error}", path=source)
    return CorruptDatabase(f"{source} is damaged: {error}", path=source, messages=(str(error),))
