"""The C interface of the very SQLite that apsw was built with, for the few things apsw does not pass on.

apsw hides the symbols of its SQLite, but SQLite hands a table of its functions to every loadable extension: a stable,
append-only interface (struct sqlite3_api_routines of sqlite3ext.h, sqlite.org/loadext.html). A VFS written with apsw
decides what "loading" means, so an extension here is a Python callback that keeps the pointer: no file is loaded.

It serves for three things: reading a row whose text is not UTF-8 (apsw decodes strictly and raises), an authorizer
that gets names as bytes (for the same reason), and a VFS that differs from SQLite's own in one function (`vfs`). The
table is proved when it is found: the version it reports must be the one apsw reports.

Calls hold the GIL (PYFUNCTYPE): each is short, and a connection has one owner at a time.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import apsw

from bird_snapshots.errors import EngineFault, SettingsDidNotHold

Value: TypeAlias = int | float | str | bytes | None

_p, _i, _s = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p

INTEGER, FLOAT, TEXT, BLOB = 1, 2, 3, 4  # what sqlite3_column_type answers; 5 is NULL. apsw does not name them

#: int xAuth(void*, int action, const char*, const char*, const char* database, const char* trigger)
AUTHORIZER = ctypes.CFUNCTYPE(_i, _p, _i, _s, _s, _s, _s)

#: Index in struct sqlite3_api_routines, result, arguments. The order of that struct never changes.
_FUNCTIONS: dict[str, tuple[int, Any, tuple[Any, ...]]] = {
    "bind_parameter_count": (7, _i, (_p,)),
    "bind_parameter_name": (9, _s, (_p, _i)),
    "column_blob": (19, _p, (_p, _i)),
    "column_bytes": (20, _i, (_p, _i)),
    "column_count": (22, _i, (_p,)),
    "column_double": (27, ctypes.c_double, (_p, _i)),
    "column_int64": (29, ctypes.c_int64, (_p, _i)),
    "column_name": (30, _s, (_p, _i)),
    "column_text": (36, _p, (_p, _i)),
    "column_type": (38, _i, (_p, _i)),
    "data_count": (48, _i, (_p,)),
    "finalize": (57, _i, (_p,)),
    "libversion": (66, _s, ()),
    "set_authorizer": (91, _i, (_p, AUTHORIZER, _p)),
    "vfs_find": (141, _p, (_s,)),
    "vfs_register": (142, _i, (_p, _i)),
    "next_stmt": (152, _p, (_p, _p)),
    "sql": (153, _s, (_p,)),
    "sourceid": (169, _s, ()),
    "prepare_v2": (116, _i, (_p, _p, _i, ctypes.POINTER(_p), ctypes.POINTER(_p))),
}


@dataclass(frozen=True, slots=True)
class Library:
    """Functions of SQLite by name, without their prefix `sqlite3_`."""

    functions: dict[str, Callable[..., Any]]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        try:
            return self.functions[name]
        except KeyError:
            raise AttributeError(name) from None


_guard = threading.Lock()
_library: Library | None = None


def library() -> Library:
    """The functions of apsw's SQLite, found once in a process.

    Raises:
        SettingsDidNotHold: This build of SQLite loads no extensions, or its table is not the expected one.
    """
    global _library  # noqa: PLW0603 - one SQLite in a process, one table of it
    with _guard:
        if _library is None:
            _library = _find()
        return _library


def _find() -> Library:
    received: list[int] = []

    def receive(_database: int, _message: int, routines: int) -> int:
        received.append(routines)
        return apsw.SQLITE_OK

    entry = ctypes.CFUNCTYPE(_i, _p, _p, _p)(receive)
    address = ctypes.cast(entry, _p).value or 0

    class Door(apsw.VFS):
        def xDlOpen(self, filename: str) -> int:  # noqa: N802 - SQLite's names
            return 1

        def xDlSym(self, handle: int, symbol: str) -> int:  # noqa: N802
            return address

        def xDlClose(self, handle: int) -> None:  # noqa: N802
            return None

    door = Door("bird-door", "")
    try:
        connection = apsw.Connection(":memory:", vfs="bird-door")
        try:
            connection.enable_load_extension(True)
            connection.load_extension("bird", "entry")
        finally:
            connection.close()
    except (apsw.Error, AttributeError) as error:
        raise SettingsDidNotHold(f"this build of apsw has no door to its SQLite: {error}") from error
    finally:
        door.unregister()
    if not received or not received[0]:
        raise SettingsDidNotHold("SQLite did not hand out the table of its functions")
    table = (ctypes.c_void_p * (max(index for index, _, _ in _FUNCTIONS.values()) + 1)).from_address(received[0])
    functions: dict[str, Callable[..., Any]] = {}
    for name, (index, result, arguments) in _FUNCTIONS.items():
        pointer = table[index]
        if not pointer:
            raise SettingsDidNotHold(f"this build of SQLite has no sqlite3_{name}")
        functions[name] = ctypes.PYFUNCTYPE(result, *arguments)(pointer)
    found = Library(functions)
    version = found.libversion().decode("ascii")
    source = found.sourceid().decode("ascii")
    if version != apsw.sqlite_lib_version() or source != apsw.sqlite3_sourceid():
        raise SettingsDidNotHold(
            f"the table of functions is of SQLite {version}, apsw's is {apsw.sqlite_lib_version()}"
        )
    return found


def text(data: bytes) -> str:
    """UTF-8 as a str; bytes that are none become surrogate escapes (PEP 383) and read back exactly."""
    return data.decode("utf-8", "surrogateescape")


def statement(connection: apsw.Connection, sql: str) -> int:
    """The most recently prepared statement of a connection that was made from the head of this text.

    A connection may hold others: full-text tables keep theirs.

    Raises:
        EngineFault: There is none.
    """
    lib, wanted = library(), sql.encode()
    pointer = lib.next_stmt(connection.sqlite3_pointer(), None)
    while pointer:
        made_from: bytes | None = lib.sql(pointer)
        if made_from and wanted.startswith(made_from):
            return int(pointer)
        pointer = lib.next_stmt(connection.sqlite3_pointer(), pointer)
    raise EngineFault("SQLite's statement cannot be found")


def columns(pointer: int) -> tuple[str, ...]:
    """Names of the result columns of a prepared statement."""
    lib = library()
    return tuple(text(lib.column_name(pointer, index) or b"") for index in range(lib.column_count(pointer)))


def parameters(connection: apsw.Connection, sql: str) -> tuple[int, tuple[str, ...]]:
    """Where the first statement of a text ends, in bytes, and its parameters as they are written, such as `?2` or `:a`.

    Parameters without a number are `?`, and so are the numbers that are skipped before one that has it.
    """
    lib, buffer = library(), ctypes.create_string_buffer(sql.encode())
    prepared, tail = ctypes.c_void_p(), ctypes.c_void_p()
    start = ctypes.addressof(buffer)
    lib.prepare_v2(connection.sqlite3_pointer(), start, -1, ctypes.byref(prepared), ctypes.byref(tail))
    if not prepared.value:
        return len(buffer) - 1, ()
    try:
        count = lib.bind_parameter_count(prepared.value)
        names = [lib.bind_parameter_name(prepared.value, index + 1) for index in range(count)]
    finally:
        lib.finalize(prepared.value)
    return (tail.value or start) - start, tuple("?" if name is None else text(name) for name in names)


def row(pointer: int) -> tuple[Value, ...]:
    """The row that a statement stands on, as apsw would give it, with invalid UTF-8 as surrogate escapes."""
    lib = library()
    return tuple(_value(lib, pointer, index) for index in range(lib.data_count(pointer)))


def _value(lib: Library, pointer: int, index: int) -> Value:
    kind = lib.column_type(pointer, index)  # first: the other calls may convert the value in place
    if kind == INTEGER:
        return int(lib.column_int64(pointer, index))
    if kind == FLOAT:
        return float(lib.column_double(pointer, index))
    if kind == TEXT:
        start = lib.column_text(pointer, index)
        return text(ctypes.string_at(start, lib.column_bytes(pointer, index)))
    if kind == BLOB:
        start = lib.column_blob(pointer, index)
        size = lib.column_bytes(pointer, index)
        return ctypes.string_at(start, size) if size else b""
    return None


Authorize: TypeAlias = Callable[[int, bytes | None, bytes | None, bytes | None, bytes | None], int]


def set_authorizer(connection: apsw.Connection, decide: Authorize) -> object:
    """Ask `decide(action, first, second, database, trigger)` before each thing that a statement wants to do.

    An exception inside it denies: ctypes would otherwise answer 0, which allows.

    Returns:
        What must be kept alive as long as the connection.
    """

    def guarded(_context: int, action: int, *names: bytes | None) -> int:
        try:
            first, second, database, trigger = names
            return decide(action, first, second, database, trigger)
        except BaseException:  # noqa: BLE001 - whatever happened, an unanswered question is answered no
            return apsw.SQLITE_DENY

    callback = AUTHORIZER(guarded)
    result = library().set_authorizer(connection.sqlite3_pointer(), callback, None)
    if result != apsw.SQLITE_OK:
        raise SettingsDidNotHold(f"the authorizer was refused with code {result}")
    return callback


def as_texts(values: Sequence[bytes | None]) -> tuple[str | None, ...]:
    """Names as SQLite gave them, as text."""
    return tuple(None if value is None else text(value) for value in values)
