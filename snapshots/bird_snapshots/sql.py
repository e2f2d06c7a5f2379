"""Statements of the engine itself, run on any connection: rows with every text readable, and PRAGMAs.

It is also the typed face of apsw, whose stubs name a type (Buffer) that Python 3.11 does not have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, cast

import apsw

from bird_snapshots import native
from bird_snapshots.native import Value
from bird_snapshots.rows import Row


class TypedCursor(Protocol):
    """What the engine uses of apsw.Cursor."""

    exec_trace: Any

    def execute(
        self, statements: str, bindings: Sequence[Value] | Mapping[str, Value] | None = ..., *, can_cache: bool = ...
    ) -> object: ...

    def __iter__(self) -> Iterator[Row]: ...

    def __next__(self) -> Row: ...

    def close(self, force: bool = ...) -> None: ...


class _TypedConnection(Protocol):
    def pragma(self, name: str, value: Value = ..., *, schema: str | None = ...) -> Any: ...


def cursor(connection: apsw.Connection) -> TypedCursor:
    """A cursor of a connection. Close it with `force`: what it was doing is then over."""
    return cast("TypedCursor", connection.cursor())


def pragma(connection: apsw.Connection, name: str, value: Value = None) -> Any:
    """Set a PRAGMA where a value is given; its first answer, or None."""
    typed = cast("_TypedConnection", connection)
    return typed.pragma(name) if value is None else typed.pragma(name, value)


def query(connection: apsw.Connection, sql: str, bindings: Sequence[Value] = ()) -> list[Row]:
    """All rows of one statement; text that is no UTF-8 comes with surrogate escapes (PEP 383)."""
    found: list[Row] = []
    running = cursor(connection)
    try:
        running.execute(sql, bindings, can_cache=False)
        while True:
            try:
                found.extend(running)
            except UnicodeDecodeError:  # apsw decodes strictly; it leaves the statement on this row
                found.append(row_of(connection, sql))
            else:
                return found
    finally:
        running.close(True)


def row_of(connection: apsw.Connection, sql: str) -> Row:
    """The row that the statement with this text stands on."""
    return native.row(native.statement(connection, sql))
