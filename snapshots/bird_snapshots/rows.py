"""Rows of one result: how they are read, capped, counted and hashed.

A row is a tuple of None, int, float, str and bytes. Text that is no UTF-8 is a str with surrogate escapes (PEP 383):
`value.encode("utf-8", "surrogateescape")` gives the bytes that the database holds.

Every row is hashed, also those beyond the caps, in an encoding that is a function of the values alone: Python's
`marshal` in its version 2, which writes a type letter and the value (int 32 bits or digits of 15 bits, double 8 bytes,
text and bytes with their length) and, unlike later versions, neither references nor interning.
"""

from __future__ import annotations

import hashlib
import marshal

from bird_snapshots.native import Value

Row = tuple[Value, ...]


def encoded(values: tuple[Value, ...]) -> bytes:
    """The canonical encoding of a row, or of a tuple of plain values."""
    return marshal.dumps(values, 2)


#: What JSON writes with six bytes, and with two; BLOBs and text that is no UTF-8 are base64 there.
_SIX = bytes(byte for byte in range(32) if byte not in b"\b\t\n\f\r")
_TWO = b'"\\\b\t\n\f\r'
_QUOTES = 3  # two of them and a comma
_TAG = 14


def size_of(row: Row) -> int:
    """Bytes of a row as `Limits.result_bytes` counts them: about what JSON takes for it, 8 for a number or NULL."""
    return sum(_size_of(value) if isinstance(value, str | bytes) else 8 for value in row)


def _size_of(value: str | bytes) -> int:
    if isinstance(value, bytes):
        return _TAG + (len(value) + 2) // 3 * 4
    data = value.encode("utf-8", "surrogateescape")
    if "\0" in value or (not value.isascii() and _is_broken(value)):
        return _TAG + (len(data) + 2) // 3 * 4
    size = len(data) + _QUOTES
    if not value.isprintable():
        size += 5 * (len(data) - len(data.translate(None, _SIX)))
    return size + len(data) - len(data.translate(None, _TWO))


def _is_broken(value: str) -> bool:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


class Collector:
    """Takes the rows of one result as they come.

    Args:
        columns: Names of the columns; part of the hash.
        rows: How many rows to keep.
        result_bytes: How many bytes to keep. The first row that does not fit ends the keeping.
    """

    def __init__(self, columns: tuple[str, ...], rows: int, result_bytes: int) -> None:
        self.columns = columns
        self.rows: list[Row] = []
        self.seen = 0
        self.bytes_seen = 0
        self._room_rows = rows
        self._room_bytes = result_bytes
        self._hash = hashlib.sha256(encoded(tuple(name.encode("utf-8", "surrogateescape") for name in columns)))

    def add(self, row: Row) -> None:
        self.seen += 1
        data = encoded(row)
        self.bytes_seen += len(data)
        self._hash.update(data)
        if self._room_rows > 0:
            self._room_bytes -= size_of(row)
            self._room_rows = self._room_rows - 1 if self._room_bytes >= 0 else 0
            if self._room_bytes >= 0:
                self.rows.append(row)

    @property
    def truncated(self) -> bool:
        return self.seen > len(self.rows)

    def digest(self, *facts: Value) -> str:
        """The hash of the columns, of every row seen, and of further plain values."""
        final = self._hash.copy()
        final.update(encoded(facts))
        return final.hexdigest()
