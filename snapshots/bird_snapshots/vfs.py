"""`bird-none`: SQLite's own `unix-none` VFS, with one function of ours in front: the one that opens a file.

Why: a statement's temporary files (a sort that spills, an ephemeral table, a TEMP database) are deleted as they are
opened, and SQLite tells nobody whose they are. Here each gets its place in the store's own folder and is noted in the
account of the replica on whose behalf this thread is opening it, so that its size can be asked at any time. Reading and
writing are SQLite's own functions, at their own speed: the struct is a copy of `unix-none` but for one pointer.

The account is a thread's while it is inside `charged(...)`. Files that no account claims are opened as ever.
"""

from __future__ import annotations

import ctypes
import os
import threading
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import apsw

from bird_snapshots.errors import SettingsDidNotHold
from bird_snapshots.native import library

NAME = "bird-none"
BASE = "unix-none"

_TEMPORARY = (
    apsw.SQLITE_OPEN_TEMP_DB
    | apsw.SQLITE_OPEN_TRANSIENT_DB
    | apsw.SQLITE_OPEN_TEMP_JOURNAL
    | apsw.SQLITE_OPEN_SUBJOURNAL
)

#: int xOpen(sqlite3_vfs*, const char*, sqlite3_file*, int flags, int* found_flags). `use_errno` carries the reason of a
#: refusal through Python to SQLite, which asks for it afterwards.
_OPEN = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, use_errno=True
)


class _Vfs(ctypes.Structure):
    """struct sqlite3_vfs of sqlite3.h, version 3."""

    _fields_ = (
        ("iVersion", ctypes.c_int),
        ("szOsFile", ctypes.c_int),
        ("mxPathname", ctypes.c_int),
        ("pNext", ctypes.c_void_p),
        ("zName", ctypes.c_char_p),
        ("pAppData", ctypes.c_void_p),
        ("xOpen", _OPEN),
        ("rest", ctypes.c_void_p * 14),
    )


class UnixFile(ctypes.Structure):
    """The leading fields of struct unixFile in SQLite's os_unix.c. Whoever reads it checks `h` with fstat first."""

    _fields_ = (
        ("pMethods", ctypes.c_void_p),
        ("pVfs", ctypes.c_void_p),
        ("pInode", ctypes.c_void_p),
        ("h", ctypes.c_int),
    )


class TemporaryFiles:
    """The account of one replica's temporary files: where they are put, and how large they are at this moment."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.fsencode(folder)
        self._open: dict[int, tuple[tuple[int, int], ctypes.Array[ctypes.c_char]]] = {}

    def bytes(self) -> int:
        """Bytes in the files that are still open; forgets those that are not."""
        total = 0
        for descriptor, (identity, _) in tuple(self._open.items()):
            size = self._size(descriptor, identity)
            if size is None:
                self._open.pop(descriptor, None)  # another thread that only counts may have been faster
            else:
                total += size
        return total

    def _size(self, descriptor: int, identity: tuple[int, int]) -> int | None:
        """The size of a file of ours, or None when its descriptor was closed, and perhaps used again since."""
        if _owners.get(descriptor) is not self:
            return None
        try:
            found = os.fstat(descriptor)
        except OSError:
            return None
        return found.st_size if (found.st_dev, found.st_ino) == identity else None

    def close(self) -> None:
        """The replica is closed, and with it every file."""
        for descriptor in self._open:
            if _owners.get(descriptor) is self:
                _owners.pop(descriptor, None)
        self._open.clear()

    def new_name(self) -> ctypes.Array[ctypes.c_char]:
        """A path for one file. SQLite keeps the pointer while the file is open, so the buffer is kept as well."""
        return ctypes.create_string_buffer(self._folder + b"/" + uuid.uuid4().hex.encode() + b".temp\0")

    def note(self, descriptor: int, name: ctypes.Array[ctypes.c_char]) -> None:
        found = os.fstat(descriptor)
        self._open[descriptor] = ((found.st_dev, found.st_ino), name)
        _owners[descriptor] = self


#: Whose temporary file a descriptor is. The last to open it: descriptors and inode numbers are used again.
_owners: dict[int, TemporaryFiles] = {}
_thread = threading.local()


@contextmanager
def charged(account: TemporaryFiles) -> Generator[None]:
    """What this thread opens inside the block is opened for `account`."""
    before: TemporaryFiles | None = getattr(_thread, "account", None)
    _thread.account = account
    try:
        yield
    finally:
        _thread.account = before


_guard = threading.Lock()
_registered: tuple[_Vfs, object] | None = None  # SQLite keeps pointers to both


def register() -> str:
    """Make the VFS known to apsw's SQLite, once in a process; returns its name.

    Raises:
        SettingsDidNotHold: This SQLite has no `unix-none`, or refuses the VFS.
    """
    global _registered  # noqa: PLW0603 - one SQLite in a process, one VFS in it
    with _guard:
        if _registered is None:
            _registered = _make()
    return NAME


def _make() -> tuple[_Vfs, object]:
    lib = library()
    base_address = lib.vfs_find(BASE.encode())
    if not base_address:
        raise SettingsDidNotHold(f"this SQLite has no VFS {BASE}")
    base = _Vfs.from_address(base_address)
    if base.iVersion < 3 or base.zName != BASE.encode():
        raise SettingsDidNotHold(f"the VFS {BASE} is not laid out as expected")
    original = base.xOpen

    def open_file(_vfs: int, name: int | None, file: int, flags: int, found_flags: int | None) -> int:
        account: TemporaryFiles | None = getattr(_thread, "account", None)
        if account is None or name or not flags & _TEMPORARY:
            return int(original(base_address, name, file, flags, found_flags))
        try:
            path = account.new_name()
            result = int(original(base_address, ctypes.addressof(path), file, flags, found_flags))
            if result == apsw.SQLITE_OK:
                account.note(UnixFile.from_address(file).h, path)
        except BaseException:  # noqa: BLE001 - ctypes would turn an exception into "opened"
            return apsw.SQLITE_CANTOPEN
        return result

    callback = _OPEN(open_file)
    ours = _Vfs()
    ctypes.pointer(ours)[0] = base
    ours.zName = NAME.encode()
    ours.pNext = None
    ours.xOpen = callback
    result = lib.vfs_register(ctypes.addressof(ours), 0)
    if result != apsw.SQLITE_OK:
        raise SettingsDidNotHold(f"the VFS {NAME} was refused with code {result}")
    return ours, callback
