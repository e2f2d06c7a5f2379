"""Objects of a file, one after the other, each with its place; a damaged one is named and the rest is read.

JSON arrays, JSON Lines and Parquet are told apart by their content, never by the file's name. Lines end at LF alone:
a JSON string may hold U+2028 and other marks that Python also takes for line ends. Text is UTF-8, with or without a
byte-order mark (UTF-16 and UTF-32 with one are read too). Parquet needs pyarrow, imported when a Parquet file comes.

Leaves out what the objects mean (`formats`).
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bird_env.errors import DataError
from bird_env.tasks.record import plain

PARQUET_MAGIC = b"PAR1"
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
ROWS_A_BATCH = 512

#: Files that are often given instead: their first bytes, what they are, and what to do.
NO_TEXTS = (
    (b"SQLite format 3\0", "a SQLite database", "`bird-env databases import` takes databases; name the file of tasks."),
    (b"\x1f\x8b", "compressed (gzip)", "Unpack it first, with gunzip."),
    (b"PK\x03\x04", "a ZIP archive", "Unpack it first, and name the file of tasks in it."),
    (b"\xfd7zXZ\0", "compressed (xz)", "Unpack it first, with unxz."),
    (b"\x28\xb5\x2f\xfd", "compressed (zstd)", "Unpack it first, with unzstd."),
    (b"BZh", "compressed (bzip2)", "Unpack it first, with bunzip2."),
    (b"ARROW1\0\0", "an Arrow file", "Save it as Parquet or as JSON Lines."),
)
_EXPECTED = "Expected JSON, JSON Lines or Parquet."

#: How much of a file is looked at for what no text holds.
_HEAD = 4_096

#: Bytes that were no UTF-8, as `surrogateescape` decodes them. JSON spells a surrogate in ASCII, so that a raw one in
#: the text of a file can be nothing else.
_UNDECODED = re.compile("[\udc80-\udcff]")
_BLANK = re.compile(r"[ \t\r\n\ufeff]*")
_BLANKS = " \t\r\n\ufeff"


@dataclass(frozen=True, slots=True)
class Found:
    """One object of a file, or what is wrong at its place.

    Args:
        unit: `line` or `record`, what the number counts.
        number: From 1.
        value: The object (any JSON value), when it could be read.
        fault: Why it could not.
        table: Whether it is a row of a table: there a field that is absent cannot be told from a null one.
    """

    unit: str
    number: int
    value: Any = None
    fault: str | None = None
    table: bool = False


def read_objects(path: Path) -> Iterator[Found]:
    """Every object of a JSON, JSON Lines or Parquet file.

    Raises:
        DataError: The file cannot be read at all.
    """
    data = _bytes_of(path)
    if data.startswith(PARQUET_MAGIC):
        return _parquet(path)
    if data.startswith(LFS_POINTER):
        raise DataError(
            f"{path} is a Git LFS pointer, not the file itself",
            hint="Fetch the file with `git lfs pull`, or download it from where the data set is published.",
        )
    for magic, kind, hint in NO_TEXTS:
        if data.startswith(magic):
            raise DataError(f"{path} is {kind}, not a file of JSON or Parquet", hint=hint)
    text = _decode(path, data)
    if _binary(text[:_HEAD]):
        raise DataError(f"{path} is a binary file, not a file of JSON or Parquet", hint=_EXPECTED)
    return _json(text)


def _binary(head: str) -> bool:
    """Whether a file is no text. What begins as JSON is read: a crash may leave NUL bytes where a line was due."""
    return "\0" in head and not head.lstrip(_BLANKS).startswith(("{", "["))


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except IsADirectoryError as error:
        raise DataError(f"{path} is a folder", hint="Name the file of tasks itself.") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


def _decode(path: Path, data: bytes) -> str:
    encoding = json.detect_encoding(data)
    if encoding.startswith("utf-8"):
        return data.decode(encoding, "surrogateescape")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is neither UTF-8 nor {encoding}: {error.reason}", hint=_EXPECTED) from error


def _json(text: str) -> Iterator[Found]:
    start = _skip(text, 0)
    if text.startswith("[", start):
        return _array(text, start + 1)
    first = text[start:].split("\n", 1)[0]
    if text.startswith("{", start) and _parse(first)[1] is not None:
        stream = _stream(text)
        if stream is not None:
            return iter(stream)
    return _lines(text)


def _lines(text: str) -> Iterator[Found]:
    for number, line in enumerate(text.split("\n"), 1):
        spelt = line.strip(_BLANKS)
        if spelt:
            value, fault = _parse(spelt)
            yield Found("line", number, value, fault)


def _array(text: str, position: int) -> Iterator[Found]:
    """Elements of a JSON array; where one is no JSON, nothing tells where the next begins."""
    number = 0
    position = _skip(text, position)
    while not text.startswith("]", position):
        number += 1
        try:
            value, end = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            yield Found("record", number, fault=f"{_why(error)}; nothing after it can be read")
            return
        yield Found("record", number, value, _undecoded(text[position:end]))
        position = _skip(text, end)
        if text.startswith(",", position):
            position = _skip(text, position + 1)
        elif not text.startswith("]", position):
            where = "the file ends here" if position >= len(text) else "no comma follows"
            yield Found("record", number + 1, fault=f"not JSON: {where}; nothing after it can be read")
            return


def _stream(text: str) -> list[Found] | None:
    """Objects that span lines, one after the other; None where the text is not that from end to end."""
    found: list[Found] = []
    position = _skip(text, 0)
    while position < len(text):
        try:
            value, end = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            return None
        found.append(Found("record", len(found) + 1, value, _undecoded(text[position:end])))
        position = _skip(text, end)
    return found


def _parquet(path: Path) -> Iterator[Found]:
    try:
        parquet: Any = importlib.import_module("pyarrow.parquet")
        arrow: Any = importlib.import_module("pyarrow")
    except ModuleNotFoundError as error:
        raise DataError(
            f"{path} is a Parquet file, and pyarrow is not installed",
            hint="pip install 'bird-env[server]', or pyarrow alone; or convert the file to JSON Lines.",
        ) from error
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=ROWS_A_BATCH):
                for row in batch.to_pylist():
                    number += 1
                    yield Found("record", number, plain(row), table=True)
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"{path} is a damaged Parquet file: {error}") from error


_DECODER = json.JSONDecoder()


def _parse(text: str) -> tuple[Any, str | None]:
    if _UNDECODED.search(text):
        return None, _undecoded(text)
    try:
        return json.loads(text), None
    except (ValueError, RecursionError) as error:
        return None, _why(error)


def _undecoded(text: str) -> str | None:
    return "not valid UTF-8" if _UNDECODED.search(text) else None


def _why(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg} at character {error.colno}"
    if isinstance(error, RecursionError):
        return "not JSON that can be read: it is nested too deeply"
    return f"not JSON: {error}"


def _skip(text: str, position: int) -> int:
    """The next position that holds no blank: JSON's own four, and byte-order marks of files that were joined."""
    found = _BLANK.match(text, position)
    return found.end() if found is not None else position
