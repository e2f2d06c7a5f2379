"""A task's record in the form that the official evaluator reads, made from what a file holds.

Responsible for: the plain-Python form (Parquet and pandas bring arrays, bytes and timestamps), the rules of the
record's fields, and saying what is wrong with a record. The rules are the public BIRD-CRITIC evaluator's:
`selected_database` wins over `db_id` wherever the key is present; in the SQL fields something empty is no statement, a
text is one statement (never split), a list is taken as it is, and anything else is no statement. A key that is absent
stays absent, because the evaluator tells an absent `preprocess_sql` from an empty one; nothing is added that the record
does not say.

One thing is read that the evaluator would not: a list that was written as JSON into a string, as tables of strings do.

Leaves out: which file formats there are (`formats`), reading files (`reading`), and what the fields mean (`task`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, TypeGuard

from bird_env.errors import DataError

#: A record, or any JSON object of one.
Record = dict[str, Any]

#: Far beyond any task, and far from what reading and writing JSON can follow.
MAX_DEPTH = 100

#: Fields that hold statements: a list, a text, or nothing.
SQL_FIELDS = ("preprocess_sql", "issue_sql", "sol_sql", "clean_up_sql")


def is_object(value: object) -> TypeGuard[Record]:
    """Whether it is a JSON object (a mapping of a library counts)."""
    return isinstance(value, Mapping)


def is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _is_tuple(value: object) -> TypeGuard[tuple[Any, ...]]:
    return isinstance(value, tuple)


def plain(value: Any, *, depth: int = 0) -> Any:
    """The value as JSON knows it: dict, list, str, int, float, bool or None, whatever library brought it.

    Arrays become lists, bytes the text they encode, NaN (how tables of numbers say "nothing") None, and what JSON has
    no form for its text. Lone surrogates and NUL stay in texts.

    Raises:
        DataError: Lists or objects are nested more than `MAX_DEPTH` deep.
    """
    if depth > MAX_DEPTH:
        raise DataError(f"it is nested more than {MAX_DEPTH} deep")
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if is_object(value):
        return {str(key): plain(entry, depth=depth + 1) for key, entry in value.items()}
    if is_list(value) or _is_tuple(value):
        return [plain(entry, depth=depth + 1) for entry in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if hasattr(value, "tolist"):
        return plain(value.tolist(), depth=depth + 1)
    return str(value)


def without_nulls(value: Any) -> Any:
    """The value without the members that are null: in a table an absent field cannot be told from a null one."""
    if is_object(value):
        return {key: without_nulls(entry) for key, entry in value.items() if entry is not None}
    return value


def canonical(raw: Mapping[str, Any], *, partial: bool = False) -> tuple[Record, list[str]]:
    """The record in the evaluator's form, and remarks on fields that the evaluator takes but hardly as they were meant.

    Args:
        raw: An object as a file holds it, already under the evaluator's names (see `formats`).
        partial: Whether it may lack a database, as an entry of a gold file does.

    Raises:
        DataError: The evaluator, or a policy, could do nothing with it; the detail says why.
    """
    record: Record = plain(raw)
    remarks: list[str] = []
    record["instance_id"] = _instance_id(record)
    if not partial:
        _check_database(record)
    for key in SQL_FIELDS:
        if key in record:
            record[key] = _statements(key, record[key], remarks)
    if "test_cases" in record:
        record["test_cases"] = _tests(record["test_cases"], remarks)
    for key in ("query", "question", "evidence", "category", "difficulty"):
        if key in record:
            record[key] = _text_or_null(key, record[key])
    return record, remarks


def database_of(record: Mapping[str, Any]) -> str | None:
    """The name of its database: `selected_database` wherever that key is present, else `db_id`."""
    name = record["selected_database"] if "selected_database" in record else record.get("db_id")
    return name if isinstance(name, str) else None


def decode_list(value: Any) -> Any:
    """The list that a string spells as JSON, where it spells a list of texts; else the value itself."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            found: Any = json.loads(value)
        except (ValueError, RecursionError):
            return value
        if is_list(found) and all(isinstance(entry, str) for entry in found):
            return found
    return value


def canonical_json(record: Mapping[str, Any]) -> str:
    """One text for one record: keys sorted, ASCII only, so that surrogates and NUL survive any storage."""
    return json.dumps(record, sort_keys=True, ensure_ascii=True, separators=(",", ":"))


def _instance_id(record: Record) -> str:
    value = record.get("instance_id")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if value is None or value == "":
        raise DataError("it has no instance_id")
    if not isinstance(value, str):
        raise DataError(f"instance_id is {_kind(value)}, not a text")
    if "\0" in value or not _is_unicode(value):
        raise DataError(f"instance_id {value!r} cannot stand in an address: it holds NUL or is not valid Unicode")
    return value


def _check_database(record: Record) -> None:
    if "selected_database" not in record and "db_id" not in record:
        raise DataError("it names no database: neither selected_database nor db_id")
    key = "selected_database" if "selected_database" in record else "db_id"
    value = record[key]
    if value is None or value == "":
        also = " (it wins over db_id wherever it is present)" if key == "selected_database" else ""
        raise DataError(f"it names no database: {key} is empty{also}")
    if not isinstance(value, str):
        raise DataError(f"{key} is {_kind(value)}, not a text")
    if "\0" in value or not _is_unicode(value):
        raise DataError(f"{key} {value!r} is no name of a file: it holds NUL or is not valid Unicode")


def _statements(key: str, value: Any, remarks: list[str]) -> list[Any]:
    value = decode_list(value)
    if is_list(value):
        odd = [_kind(entry) for entry in value if not isinstance(entry, str)]
        if odd:
            remarks.append(f"{key} holds {odd[0]} where a statement is expected; running it is an error")
        return value
    if not value:
        return []
    if isinstance(value, str):
        return [value]
    remarks.append(f"{key} is {_kind(value)}, which the evaluator takes for no statement at all")
    return []


def _tests(value: Any, remarks: list[str]) -> Any:
    value = decode_list(value)
    if value is None:
        remarks.append("test_cases is null: the evaluator fails such a record whatever the solution; leave the key out")
        return None
    if isinstance(value, str):
        if value:
            remarks.append("test_cases is a text: the evaluator takes each character of it for a test; make it a list")
        return value
    if not is_list(value):
        raise DataError(f"test_cases is {_kind(value)}, not a list of Python sources")
    odd = [_kind(entry) for entry in value if not isinstance(entry, str)]
    if odd:
        remarks.append(f"test_cases holds {odd[0]} where Python source is expected; such a test always fails")
    return value


def _text_or_null(key: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise DataError(f"{key} is {_kind(value)}, not a text")


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a text"
    return "a list" if is_list(value) else "an object"


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
