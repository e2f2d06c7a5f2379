"""Records as users have them, and the failure record."""

from __future__ import annotations

import marshal
from collections import OrderedDict
from datetime import date
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bird_server.scoring.job import VERDICT_FIELDS, failure_verdict, plain

TEXT = st.text(st.characters(), max_size=8)  # lone surrogates are among them
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


class Array:
    """As numpy and pyarrow show themselves."""

    def __init__(self, *items: Any) -> None:
        self._items = items

    def tolist(self) -> list[Any]:
        return list(self._items)


class Colour(StrEnum):
    RED = "red"


@settings(deadline=None, max_examples=150)
@given(JSON)
def test_what_json_brings_travels_exactly(value: Any) -> None:
    assert plain(value) == value
    assert repr(marshal.loads(marshal.dumps(plain(value)))) == repr(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (("a", ("b",)), ["a", ["b"]]),
        (Array("a", Array("b")), ["a", ["b"]]),
        ({"k": Array()}, {"k": []}),
        (OrderedDict(k=1), {"k": 1}),
        ({2: "a", None: "b", True: "c"}, {"2": "a", "null": "b", "true": "c"}),
        (Colour.RED, "red"),
        (b"\xc3\xa9\xff", "é\udcff"),
        (date(2024, 5, 6), "2024-05-06"),
    ],
)
def test_what_tables_bring_becomes_what_json_would_have(value: Any, expected: Any) -> None:
    assert plain(value) == expected
    assert type(plain(value)) is type(expected)


@pytest.mark.parametrize(
    ("record", "total"),
    [
        ({}, 0),
        ({"test_cases": ["a", "b"]}, 2),
        ({"test_cases": "abc"}, 3),
        ({"test_cases": {"a": 1}}, 1),
        ({"test_cases": None}, 0),
        ({"test_cases": 7}, 0),
    ],
)
def test_the_failure_record_counts_the_tests_where_they_can_be_counted(record: dict[str, Any], total: int) -> None:
    assert failure_verdict(record).as_dict() == {
        "status": "failed",
        "passed": 0,
        "total": total,
        "failed_tests": [],
        "execution_error": True,
        "timeout_error": False,
        "assertion_error": False,
        "issue_sql_passed_unexpectedly": None,
    }
    assert tuple(failure_verdict(record).as_dict()) == VERDICT_FIELDS
