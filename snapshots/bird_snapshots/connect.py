"""The only door to SQLite: every connection of the engine is opened here, setting by setting, each with its reason.

`open_replica` opens a hard link to a template beside its own WAL such that no write can reach the template's inode:

1. `vfs=bird-none` (SQLite's `unix-none`): locks belong to the inode, and every replica of a template shares it.
2. `locking_mode=EXCLUSIVE` before the first read: the WAL's index stays on the heap; `unix-none` has no shared memory.
3. A read-only descriptor in place of the main file's: what no setting forbids, the kernel does.
4. No checkpoint, neither by size nor at the close; no fsync (a crash of the machine may take the last moments).
5. Limits, the progress handler, the WAL hook (after every PRAGMA: setting one of them removes it), the authorizer last,
   since it would refuse all of the above.

Each setting is read back. Two other openings serve publishing: `open_source` reads a file that is not ours and
leaves no trace beside it, `open_private` writes a file that nobody else knows yet.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import apsw

from bird_snapshots import heap, native, vfs
from bird_snapshots.errors import (
    EngineFault,
    GuardFailed,
    SettingsDidNotHold,
    SnapshotError,
    TemplateDamaged,
    translated,
)
from bird_snapshots.policy import Policy
from bird_snapshots.sql import pragma

#: Virtual-machine steps between looks at the clock and the quotas. A look takes the GIL: every 1,000 steps made eight
#: concurrent queries 2.5 times slower; every 20,000 is not measurable and still comes every millisecond or so.
CHECK_EVERY_STEPS = 20_000

#: The same for statements that write: a row of a megabyte takes some 25 steps. 2,000 cost 1.5 times the processor time.
CHECK_WRITES_EVERY_STEPS = 5_000

SOURCE_BUSY_MS = 5_000  # how long a writer of a file that is being published is waited for

CACHE_KIB = 256  # pages come from the mapping below; the cache holds what is being changed
MAP_BYTES = 1 << 40  # more than any template: its pages are shared by all replicas, in the page cache of the kernel

#: SQLite's limits, all set so that a build's own do not show. LENGTH and the quotas change with each call.
LIMITS: dict[int, int] = {
    apsw.SQLITE_LIMIT_LENGTH: 1_000_000,
    apsw.SQLITE_LIMIT_SQL_LENGTH: 4_000_000,  # parsed, a statement takes some 50 times its length of memory
    apsw.SQLITE_LIMIT_COLUMN: 2_000,
    apsw.SQLITE_LIMIT_EXPR_DEPTH: 1_000,
    apsw.SQLITE_LIMIT_COMPOUND_SELECT: 500,
    apsw.SQLITE_LIMIT_FUNCTION_ARG: 127,
    apsw.SQLITE_LIMIT_ATTACHED: 1,  # one private database; with 0 VACUUM would fail
    apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1_000,  # LIKE cannot be interrupted: its time is pattern times text
    apsw.SQLITE_LIMIT_VARIABLE_NUMBER: 32_766,
    apsw.SQLITE_LIMIT_TRIGGER_DEPTH: 1_000,
    apsw.SQLITE_LIMIT_WORKER_THREADS: 0,  # a helper's processor time would be nobody's
}


@dataclass(frozen=True, slots=True)
class Opened:
    """A replica's connection.

    Attributes:
        connection: The connection.
        keepalive: What must live as long as it: SQLite holds a pointer to it.
        wal_descriptor: SQLite's own descriptor of the WAL, open as long as the connection; for reading only.
        page_size: Bytes of a page.
        pages: Pages of the database as it was opened.
    """

    connection: apsw.Connection
    keepalive: object
    wal_descriptor: int
    page_size: int
    pages: int


def open_replica(
    path: Path,
    policy: Policy,
    *,
    check: Callable[[], bool],
    committed: Callable[[int], None],
    float_digits: int | None = None,
) -> Opened:
    """Open a hard link to a template, with the WAL beside it, as the module describes.

    Args:
        path: The link. Its name was never used before.
        policy: The authorizer, installed last.
        check: Called every CHECK_EVERY_STEPS; True ends the statement.
        committed: Called after each commit with the number of frames that the WAL then has.
        float_digits: Digits in which a REAL becomes text; None leaves them to SQLite.

    Raises:
        StoreFull: No descriptor or no memory is left.
        SettingsDidNotHold: SQLite does not run as it was set to.
        GuardFailed: The main file could still be written.
        TemplateDamaged: SQLite cannot read the file.
    """
    try:
        connection = apsw.Connection(
            str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs.register(), statementcachesize=0
        )
    except apsw.CantOpenError as error:
        raise _why_not_opened(path, error) from error
    except (apsw.NoMemError, MemoryError) as error:
        raise heap.no_room("opening a replica") from error
    try:
        _guard(connection, path)
        _configure(connection, float_digits)
        _never_checkpoint_on_close(connection)
        _set_pragmas(connection)
        _limit(connection)
        pages = int(pragma(connection, "page_count"))
        page_size = int(pragma(connection, "page_size"))
        wal_descriptor = _descriptor(connection, apsw.SQLITE_FCNTL_JOURNAL_POINTER, Path(f"{path}-wal"))
        connection.set_progress_handler(check, CHECK_EVERY_STEPS)
        connection.set_wal_hook(_wal_hook(committed))
        keepalive = native.set_authorizer(connection, policy.decide)
    except apsw.CantOpenError as error:
        connection.close()
        raise _why_not_opened(path, error) from error
    except (apsw.NoMemError, MemoryError) as error:
        connection.close()
        raise heap.no_room("opening a replica") from error
    except (apsw.NotADBError, apsw.CorruptError) as error:
        connection.close()
        raise TemplateDamaged(f"SQLite cannot read the replica: {error}") from error
    except apsw.Error as error:
        connection.close()
        raise EngineFault(f"SQLite refused a setting: {error}") from error
    except BaseException:
        connection.close()
        raise
    return Opened(connection, keepalive, wal_descriptor, page_size, pages)


def _why_not_opened(path: Path, error: apsw.Error) -> SnapshotError:
    """SQLite says only "unable to open database file": ask the kernel, which gives the reason."""
    with translated("opening a replica"):
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        # The main file opens: then it was the WAL beside it, which is made here.
        os.close(os.open(f"{path}-wal", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
    return EngineFault(f"SQLite could not open a replica: {error}")


def _guard(connection: apsw.Connection, path: Path) -> None:
    """Put a read-only descriptor under the main database file: through it no write can reach the template's inode."""
    descriptor = _descriptor(connection, apsw.SQLITE_FCNTL_FILE_POINTER, path)
    with translated("guarding a template"):
        readonly = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.dup2(readonly, descriptor, inheritable=False)
        finally:
            os.close(readonly)
        mode = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
    if mode != os.O_RDONLY:
        raise GuardFailed("the main file is still writable")


def _descriptor(connection: apsw.Connection, which: int, path: Path) -> int:
    """SQLite's descriptor of one of its files, proved to be that file's."""
    holder = (ctypes.c_void_p * 1)()
    if not connection.file_control("main", which, ctypes.addressof(holder)) or not holder[0]:
        raise GuardFailed(f"SQLite does not show {path.name}")
    descriptor = int(vfs.UnixFile.from_address(holder[0]).h)
    try:
        found = os.fstat(descriptor)
    except OSError as error:
        raise GuardFailed(f"SQLite's file is not laid out as expected: {error}") from error
    with translated("guarding a template"):
        if not os.path.samestat(found, path.stat()):
            raise GuardFailed(f"the descriptor found is not that of {path.name}")
    return descriptor


def has_temporary_database(connection: apsw.Connection) -> bool:
    """Whether the database of TEMP objects was ever opened. To ask it for its tables opens it, and costs 80 KiB."""
    holder = (ctypes.c_void_p * 1)()
    try:
        return connection.file_control("temp", apsw.SQLITE_FCNTL_FILE_POINTER, ctypes.addressof(holder))
    except apsw.SQLError:
        return False


def _configure(connection: apsw.Connection, float_digits: int | None) -> None:
    """Switches that SQL cannot turn: DEFENSIVE keeps SQL from damaging the schema; nothing loads code."""
    wanted = {
        apsw.SQLITE_DBCONFIG_DEFENSIVE: 1,
        apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION: 0,
        apsw.SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER: 0,
    }
    if float_digits is not None:
        wanted[apsw.SQLITE_DBCONFIG_FP_DIGITS] = float_digits
    for option, value in wanted.items():
        found = connection.config(option, value)
        if found != value:
            raise SettingsDidNotHold(f"{apsw.mapping_db_config[option]} is {found}, not {value}")


def _never_checkpoint_on_close(connection: apsw.Connection) -> None:
    """The last connection to a WAL copies it into the main file as it closes, unless told not to."""
    if connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1) != 1:
        raise SettingsDidNotHold("closing would write the WAL into the template")


def _set_pragmas(connection: apsw.Connection) -> None:
    """PRAGMAs in the order they need, one call each: apsw ends a list of them at the first that returns a row."""
    for name, value, expected in (
        ("locking_mode", "EXCLUSIVE", "exclusive"),  # first of all: the first read would want shared memory
        ("journal_mode", None, "wal"),
        ("synchronous", "OFF", 0),  # the store is swept after a crash; only a crash of the machine could lose anything
        ("wal_autocheckpoint", 0, 0),
        ("cache_size", -CACHE_KIB, -CACHE_KIB),
        ("mmap_size", MAP_BYTES, None),
    ):
        found = None if value is None else pragma(connection, name, value)
        if found is None:  # most of them answer with what they now are; the others are asked
            found = pragma(connection, name)
        if expected is not None and found != expected:
            raise SettingsDidNotHold(f"PRAGMA {name} is {found!r}, not {expected!r}")
    if connection.readonly("main"):
        raise SettingsDidNotHold("the replica is read-only: templates must be writable by the user who owns the store")


def _limit(connection: apsw.Connection) -> None:
    for limit, value in LIMITS.items():
        connection.limit(limit, value)
        found = connection.limit(limit)
        if found != value:
            raise SettingsDidNotHold(f"{apsw.mapping_limits[limit]} is {found}, not {value}")


def _wal_hook(committed: Callable[[int], None]) -> Callable[[apsw.Connection, str, int], int]:
    def hook(_connection: apsw.Connection, _database: str, frames: int) -> int:
        committed(frames)
        return apsw.SQLITE_OK

    return hook


def open_source(path: Path, *, immutable: bool) -> apsw.Connection:
    """Open a file that is not ours for reading, leaving nothing beside it.

    Args:
        path: A database without a hot journal and without a WAL to be recovered.
        immutable: Take no lock, look for no WAL: for a file in WAL format, beside which readers make files.
    """
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    address = path.absolute().as_uri() + ("?immutable=1" if immutable else "?mode=ro")
    connection = apsw.Connection(address, flags=flags, statementcachesize=0)
    connection.set_busy_timeout(SOURCE_BUSY_MS)
    return connection


def open_private(path: Path) -> apsw.Connection:
    """Open, or create, a file that nobody else knows yet: no journal, no fsync; its maker syncs and renames it."""
    connection = apsw.Connection(
        str(path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE, statementcachesize=0
    )
    pragma(connection, "synchronous", "OFF")
    return connection
