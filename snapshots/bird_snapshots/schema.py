"""What a database holds: its tables, views and virtual tables with their columns, in the order of the file.

Names that are not UTF-8 come with surrogate escapes (PEP 383), as everywhere in the engine. An object whose definition
cannot be resolved here (a view over a missing table, a virtual table of an unknown module) has no columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import apsw

from bird_snapshots.native import Value
from bird_snapshots.sql import query


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `primary_key` says whether it is part of the key; `default` is the SQL of its default value."""

    name: str
    type: str
    not_null: bool
    primary_key: bool
    default: str | None


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """Columns that refer to another table's. Where the definition names none, they are its primary key's."""

    columns: tuple[str, ...]
    references_table: str
    references_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SchemaObject:
    """A table, view, virtual table or a virtual table's shadow.

    Attributes:
        name: Its name.
        kind: `table`, `view`, `virtual` or `shadow`.
        sql: The statement that made it, as it stands in the file.
        columns: Its columns, generated ones included, hidden ones of virtual tables not.
        foreign_keys: Its foreign keys.
        rows: How many rows it has; None where that was not asked for or cannot be told.
    """

    name: str
    kind: str
    sql: str | None
    columns: tuple[Column, ...]
    foreign_keys: tuple[ForeignKey, ...] = field(default=())
    rows: int | None = None


def read_schema(connection: apsw.Connection, *, count: bool = False) -> list[SchemaObject]:
    """Every table, view and virtual table of the main database but SQLite's own.

    Args:
        connection: Any connection to it.
        count: Count the rows of tables as well.
    """
    typed = query(connection, "SELECT name, type FROM pragma_table_list WHERE schema = 'main'")
    kinds = {str(name): str(kind) for name, kind in typed}
    objects: list[SchemaObject] = []
    listed = "SELECT rowid, name, sql FROM sqlite_schema WHERE type IN ('table', 'view') ORDER BY rowid"
    for rowid, name, sql in query(connection, listed):
        if str(name).lower().startswith("sqlite_"):
            continue
        kind = kinds.get(str(name), "table")
        columns = _columns(connection, rowid)
        objects.append(
            SchemaObject(
                name=str(name),
                kind=kind,
                sql=None if sql is None else str(sql),
                columns=columns,
                foreign_keys=_foreign_keys(connection, rowid) if kind == "table" else (),
                rows=_count(connection, str(name)) if count and kind == "table" else None,
            )
        )
    return objects


_NAME_OF = "(SELECT name FROM sqlite_schema WHERE rowid = ?)"  # a name that is not UTF-8 cannot be bound


def _columns(connection: apsw.Connection, rowid: Value) -> tuple[Column, ...]:
    sql = f'SELECT name, type, "notnull", pk, dflt_value FROM pragma_table_xinfo({_NAME_OF}) WHERE hidden <> 1'
    try:
        return tuple(
            Column(str(name), str(kind), bool(not_null), bool(key), None if default is None else str(default))
            for name, kind, not_null, key, default in query(connection, sql, (rowid,))
        )
    except apsw.SQLError:  # it refers to what is not there
        return ()


def _foreign_keys(connection: apsw.Connection, rowid: Value) -> tuple[ForeignKey, ...]:
    sql = f'SELECT id, "table", "from", "to" FROM pragma_foreign_key_list({_NAME_OF}) ORDER BY id DESC, seq'
    found: dict[Value, tuple[str, list[str], list[str | None]]] = {}
    for key, table, column, target in query(connection, sql, (rowid,)):
        _, columns, targets = found.setdefault(key, (str(table), [], []))
        columns.append(str(column))
        targets.append(None if target is None else str(target))
    return tuple(
        ForeignKey(
            tuple(columns),
            table,
            tuple(name for name in targets if name is not None) or _primary_key(connection, table),
        )
        for table, columns, targets in found.values()
    )


def _primary_key(connection: apsw.Connection, table: str) -> tuple[str, ...]:
    try:
        rows = query(connection, "SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk", (table,))
    except (apsw.SQLError, UnicodeEncodeError):
        return ()
    return tuple(str(row[0]) for row in rows)


def _count(connection: apsw.Connection, name: str) -> int | None:
    quoted = '"' + name.replace('"', '""') + '"'
    try:
        ((rows,),) = query(connection, f"SELECT count(*) FROM main.{quoted}")
    except (apsw.SQLError, UnicodeEncodeError):
        return None
    return int(rows) if isinstance(rows, int) else None
