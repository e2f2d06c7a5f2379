"""Values of SQLite in JSON and back: exactly, whatever they are, and nothing else."""

from __future__ import annotations

import json
import math
import sqlite3
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bird_env.values import MAX_SAFE_INTEGER, Value, decode, decode_rows, encode, encode_rows

INTEGERS = st.integers(-(2**63), 2**63 - 1)
REALS = st.floats(allow_nan=False)
TEXTS = st.binary().map(lambda data: data.decode("utf-8", "surrogateescape")) | st.text(
    st.characters(exclude_categories=["Cs"])
)
VALUES = st.none() | INTEGERS | REALS | TEXTS | st.binary()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["$int", "$real", "$text", "$blob", "x"]), inner),
)


def same(one: Value, other: Value) -> bool:
    """Equal in type, too, and in the sign of zero."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other and math.copysign(1.0, one) == math.copysign(1.0, other)
    return type(one) is type(other) and one == other


@given(VALUES)
def test_every_value_reads_back_exactly_through_json(value: Value) -> None:
    wire = json.dumps(encode(value), ensure_ascii=False, allow_nan=False).encode("utf-8")
    assert same(decode(json.loads(wire)), value)


@given(VALUES)
def test_a_reader_that_keeps_numbers_as_doubles_loses_nothing(value: Value) -> None:
    def as_double(text: str) -> Any:
        return int(float(text)) if float(text).is_integer() and not set(text) & set(".eE") else float(text)

    wire = json.dumps(encode(value))
    assert same(decode(json.loads(wire, parse_int=as_double)), value)


@given(st.lists(st.lists(VALUES, max_size=4), max_size=4))
def test_rows_read_back_as_tuples(rows: list[list[Value]]) -> None:
    back = decode_rows(json.loads(json.dumps(encode_rows(rows))))
    assert [list(row) for row in back] == rows
    assert all(isinstance(row, tuple) for row in back)


@given(VALUES)
def test_what_the_database_holds_is_what_arrives(value: Value) -> None:
    connection = sqlite3.connect(":memory:")
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    try:
        if isinstance(value, str):
            data = value.encode("utf-8", "surrogateescape")
            (stored,) = connection.execute("SELECT CAST(? AS TEXT)", (data,)).fetchone()
        else:
            (stored,) = connection.execute("SELECT ?", (value,)).fetchone()
    finally:
        connection.close()
    assert same(stored, value)
    assert same(decode(encode(stored)), value)


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (None, None),
        (0, 0),
        (MAX_SAFE_INTEGER, MAX_SAFE_INTEGER),
        (-MAX_SAFE_INTEGER, -MAX_SAFE_INTEGER),
        (MAX_SAFE_INTEGER + 1, {"$int": "9007199254740992"}),
        (-(2**63), {"$int": "-9223372036854775808"}),
        (1.0, 1.0),
        (float("inf"), {"$real": "Infinity"}),
        (float("-inf"), {"$real": "-Infinity"}),
        ("ä\U0001f600", "ä\U0001f600"),
        ("a\0b", {"$text": "YQBi"}),
        ("\udcff", {"$text": "/w=="}),
        (b"", {"$blob": ""}),
        (b"\x00\xff", {"$blob": "AP8="}),
        (True, 1),
    ],
)
def test_forms(value: Value, form: Any) -> None:
    assert encode(value) == form
    assert type(encode(value)) is type(form)


@pytest.mark.parametrize("value", [float("nan"), 2**63, -(2**63) - 1, "\ud800", [], {}, object(), 1j])
def test_what_sqlite_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        encode(value)


@pytest.mark.parametrize(
    "form",
    [
        [],
        {},
        {"$int": "1", "$real": "1"},
        {"$int": 1.5},
        {"$int": 1},
        {"$int": ""},
        {"$int": " 1"},
        {"$int": "1_0"},
        {"$int": "+1"},
        {"$int": "٣"},
        {"$int": "1" * 5000},
        {"$real": "NaN"},
        {"$real": "1.5"},
        {"$text": "%"},
        {"$text": None},
        {"$blob": "ä"},
        {"$blob": "QQ"},
        {"$date": "2026"},
        {"x": 1},
        True,
        float("nan"),
        float("inf"),
        10**400,
        2**63,
    ],
)
def test_forms_that_encode_never_makes_are_refused(form: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the type is the promise
        decode(form)


@given(JSON)
def test_any_json_is_a_value_or_refused(form: Any) -> None:
    try:
        value = decode(form)
    except ValueError:
        return
    assert value is None or type(value) in (int, float, str, bytes)
