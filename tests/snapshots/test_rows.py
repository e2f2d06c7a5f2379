"""Rows kept, counted and hashed."""

from __future__ import annotations

import base64
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from bird_snapshots.native import Value
from bird_snapshots.rows import Collector, Row, encoded, size_of

VALUES = st.one_of(
    st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(), st.binary(max_size=20)
)
ROWS = st.lists(st.lists(VALUES, min_size=2, max_size=2).map(tuple), max_size=20)


def typed(row: Row) -> tuple[tuple[type, Value], ...]:
    return tuple((type(value), repr(value)) for value in row)


@settings(max_examples=60, deadline=None)
@given(ROWS, ROWS)
def test_equal_rows_have_equal_hashes_and_no_others(first: list[Row], second: list[Row]) -> None:
    def digest(rows: list[Row]) -> str:
        collector = Collector(("a", "b"), 5, 1_000)
        for row in rows:
            collector.add(row)
        return collector.digest("ok", None)

    same = [typed(row) for row in first] == [typed(row) for row in second]
    assert (digest(first) == digest(second)) == same


@settings(max_examples=60, deadline=None)
@given(ROWS, st.integers(0, 12), st.integers(0, 200))
def test_a_prefix_is_kept_and_everything_counted(rows: list[Row], most: int, room: int) -> None:
    collector = Collector(("a", "b"), most, room)
    for row in rows:
        collector.add(row)
    assert collector.rows == rows[: len(collector.rows)]
    assert collector.seen == len(rows)
    assert len(collector.rows) <= most
    assert sum(map(size_of, collector.rows)) <= room
    if collector.truncated and len(collector.rows) < most:
        assert sum(map(size_of, rows[: len(collector.rows) + 1])) > room


@settings(max_examples=200, deadline=None)
@given(st.one_of(VALUES, st.text('\0\x01\x1f\n\t"\\\x7fé\udce9\u2028a')))
def test_a_size_is_about_what_json_takes(value: Value) -> None:
    if isinstance(value, bytes):
        written: object = {"$blob": base64.b64encode(value).decode()}
    elif isinstance(value, str) and ("\0" in value or any("\ud800" <= each <= "\udfff" for each in value)):
        written = {"$text": base64.b64encode(value.encode("utf-8", "surrogateescape")).decode()}
    else:
        written = value
    exact = len(json.dumps([written], ensure_ascii=False, separators=(",", ":")).encode())
    found = size_of((value,))
    if isinstance(value, str | bytes):
        assert exact - 3 <= found <= exact + 3
    else:
        assert found == 8


def test_the_encoding_is_fixed_for_all_time() -> None:
    row = (None, 1, -(2**40), 1.5, "é\udce9", b"\0")
    expected = (
        "2806000000"  # a tuple of six
        "4e"
        "6901000000"
        "6cfdffffff000000000004"
        "67000000000000f83f"
        "7505000000c3a9edb3a9"
        "730100000000"
    )
    assert encoded(row).hex() == expected


def test_equal_texts_are_encoded_alike_wherever_they_come_from() -> None:
    made = "".join(["interned_", "name"])
    assert encoded((made, made)) == encoded(("interned_name", "".join(["interned", "_name"])))


def test_names_of_columns_and_facts_count() -> None:
    digests = {
        Collector(("a",), 1, 1).digest("ok"),
        Collector(("b",), 1, 1).digest("ok"),
        Collector((), 1, 1).digest("ok"),
        Collector(("a",), 1, 1).digest("sql_error"),
        Collector(("a\udce9",), 1, 1).digest("ok"),
    }
    assert len(digests) == 5
