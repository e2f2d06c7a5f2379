"""How one SQLite value travels in JSON, and back, exactly.

| SQLite value | JSON |
|---|---|
| NULL | `null` |
| INTEGER within ±(2^53 - 1) | number |
| INTEGER beyond | `{"$int": "9007199254740993"}` |
| REAL, finite | number, always with a point or an exponent |
| REAL, infinite | `{"$real": "Infinity"}` or `{"$real": "-Infinity"}` |
| TEXT, valid UTF-8 without NUL | string |
| TEXT otherwise | `{"$text": "<base64 of its bytes>"}` |
| BLOB | `{"$blob": "<base64>"}` |

In Python, invalid UTF-8 is a `str` with surrogate escapes (PEP 383), so `text.encode("utf-8", "surrogateescape")` gives
the bytes that the database holds. A JSON reader that turns every number into a double loses nothing: integers beyond
2^53 are tagged. SQLite has no NaN (it stores NULL), no booleans and no dates.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Sequence
from typing import Any, TypeAlias, TypeGuard, cast

Value: TypeAlias = int | float | str | bytes | None
Json: TypeAlias = Any

#: Beyond it a reader that keeps numbers as doubles would round: 2^53 - 1, JavaScript's Number.MAX_SAFE_INTEGER.
MAX_SAFE_INTEGER = 2**53 - 1

_INTEGER = re.compile("-?[0-9]{1,19}")


def encode(value: Value) -> Json:
    """The JSON form of one value; see the table above.

    Raises:
        TypeError: The value is none that SQLite has.
    """
    if value is None or isinstance(value, bool):
        return value if value is None else int(value)
    if isinstance(value, int):
        if not _is_64_bit(value):
            raise TypeError("SQLite has no integers beyond 64 bits")
        return value if -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER else {"$int": str(value)}
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        if math.isnan(value):
            raise TypeError("SQLite has no NaN")
        return {"$real": "Infinity" if value > 0 else "-Infinity"}
    if isinstance(value, str):
        if "\0" in value or not _is_plain(value):
            return {"$text": base64.b64encode(_bytes_of(value)).decode("ascii")}
        return value
    if isinstance(value, bytes):  # pyright: ignore[reportUnnecessaryIsInstance] - callers need not be typed
        return {"$blob": base64.b64encode(value).decode("ascii")}
    raise TypeError(f"SQLite has no value of type {type(value).__name__}")


def decode(value: Json) -> Value:
    """The value a JSON form stands for.

    Raises:
        ValueError: Not a form that `encode` makes.
    """
    if isinstance(value, dict):
        entries = cast("dict[object, object]", value)
        if len(entries) == 1:
            ((tag, text),) = entries.items()
            if isinstance(text, str):
                return _decode_tagged(tag, text)
    elif value is None or isinstance(value, str) or _is_number(value):
        return value
    raise ValueError(f"not an encoded value: {value!r}")


def _decode_tagged(tag: object, text: str) -> Value:
    if tag == "$int" and _INTEGER.fullmatch(text):
        return int(text)
    if tag == "$real" and text in ("Infinity", "-Infinity"):
        return float(text)
    if tag == "$text":
        return base64.b64decode(text, validate=True).decode("utf-8", "surrogateescape")
    if tag == "$blob":
        return base64.b64decode(text, validate=True)
    raise ValueError(f"not an encoded value: {tag!r}: {text[:100]!r}")


def encode_rows(rows: Sequence[Sequence[Value]]) -> list[list[Json]]:
    """Rows in JSON form: one list a row, one entry a column."""
    return [[encode(value) for value in row] for row in rows]


def decode_rows(rows: Sequence[Sequence[Json]]) -> list[tuple[Value, ...]]:
    """Rows as the database gave them: one tuple a row."""
    return [tuple(decode(value) for value in row) for row in rows]


def _is_number(value: object) -> TypeGuard[int | float]:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and _is_64_bit(value)


def _is_64_bit(value: int) -> bool:
    return -(2**63) <= value < 2**63


def _bytes_of(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise TypeError("SQLite has no text with a lone surrogate that stands for no byte") from error


def _is_plain(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
