"""Text surgery and comparison, rule by rule; the wider effects are in the rule cases."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bird_server.scoring.comparison import (
    check_sql_function_usage,
    equal_results,
    preprocess_results,
    remove_comments,
    remove_distinct,
    remove_round,
)

SQL = st.text(st.sampled_from("ab ,()-/*\n\r'RONDrond1"), max_size=60)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("SELECT 1 -- c\n+ 1", "SELECT 1 \n+ 1"),
        ("SELECT 1 -- c\r\n+ 1", "SELECT 1 \r\n+ 1"),
        ("SELECT 1 -- c\r+ 1", "SELECT 1 \r+ 1"),
        ("SELECT 1 -- open end", "SELECT 1 -- open end"),
        ("SELECT 'a--b'\n", "SELECT 'a"),
        ("SELECT /* a */ 1 /* b */", "SELECT  1"),
        ("SELECT /* a\nb */ 1", "SELECT  1"),
        ("SELECT 1 /* open", "SELECT 1 /* open"),
        ("a\n\n\nb", "a\nb"),
        ("a\n \t\n  b", "a\n  b"),
        ("  a  ", "a"),
        ("-- x /* y\n1 /* z */ 2", "-- x  2"),
    ],
)
def test_comments(text: str, cleaned: str) -> None:
    assert remove_comments([text]) == [cleaned]


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("SELECT DISTINCT a", "SELECT a"),
        ("SELECT  dIsTiNcT  a", "SELECT   a"),
        ("COUNT(DISTINCT a)", "COUNT(DISTINCT a)"),
        ("COUNT( DISTINCT a)", "COUNT( a)"),
        ("SELECT DISTINCT\na", "SELECT DISTINCT\na"),
        ("'a distinct b'", "'a b'"),
    ],
)
def test_distinct(text: str, cleaned: str) -> None:
    assert remove_distinct([text]) == [cleaned]


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("ROUND(a, 2)", "a"),
        ("round ( a )", "a"),
        ("rOuNd\n(COALESCE(f,0), 1)", "COALESCE(f,0)"),
        ("ROUND(ROUND(a, 1), 2)", "a"),
        ("ROUND(a + b, 2) * 2", "a + b * 2"),
        ("ROUND(a, ROUND(b, 1))", "a"),
        ("ground(c)", "gc"),
        ("'ROUND(1.5)'", "'1.5'"),
        ("ROUND(a, 2", "ROUND(a, 2"),
        ("ROUND(a) + ROUND(b", "a + ROUND(b"),
        ("ROUND()", ""),
        ("ROUND('a,b' || ')', 1)", "'a', 1)"),
    ],
)
def test_round(text: str, cleaned: str) -> None:
    assert remove_round([text]) == [cleaned]


@settings(deadline=None, max_examples=200)
@given(SQL)
def test_no_whole_call_of_round_is_left(text: str) -> None:
    (left,) = remove_round([text])
    call = re.search(r"ROUND\s*\(", left, re.IGNORECASE)
    if call is not None:
        depth, rest = 1, left[call.end() :]
        for character in rest:
            depth += {"(": 1, ")": -1}.get(character, 0)
            assert depth > 0
    assert remove_round([left]) == [left]


@settings(deadline=None, max_examples=200)
@given(SQL)
def test_no_whole_comment_is_left_by_the_order_of_the_steps(text: str) -> None:
    (left,) = remove_comments([text])
    assert left == left.strip()
    assert not re.search(r"--.*[\r\n]", left)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.sampled_from(["distinct", "DISTINCT", "a", "", "(distinct"]), max_size=8))
def test_what_is_left_of_distinct_is_the_other_pieces(pieces: list[str]) -> None:
    assert remove_distinct([" ".join(pieces)]) == [" ".join(p for p in pieces if p.lower() != "distinct")]


def test_the_cleaners_make_new_lists() -> None:
    given_ = ["ROUND(1) "]
    assert remove_round(given_) is not given_
    assert remove_comments([]) == remove_distinct([]) == remove_round([]) == []
    assert given_ == ["ROUND(1) "]


def test_keywords() -> None:
    assert check_sql_function_usage(["SELECT Row_Number()", "OVER"], ["row_number", "() over"]) == 1
    assert check_sql_function_usage(["SELECT 1"], ["over"]) == 0
    assert check_sql_function_usage(["SELECT 1"], []) == 1
    assert check_sql_function_usage([], []) == 0


@pytest.mark.parametrize(
    ("cell", "normalised"),
    [
        (2.675, 2.67),
        (0.125, 0.12),
        (1e300, 1e300),
        (float("inf"), float("inf")),
        (7, 7),
        (True, True),
        ("2.675", "2.675"),
        (b"\xff", b"\xff"),
        (None, None),
        (Decimal("0.125"), Decimal("0.13")),
        (Decimal("-0.125"), Decimal("-0.13")),
        (date(2024, 5, 6), "2024-05-06"),
        (datetime(2024, 5, 6, 7, 8, tzinfo=UTC), "2024-05-06"),
        ([1.239, {"b": 1.239, "a": None}], '[1.24, {"a": null, "b": 1.24}]'),
        ({"b": (1.239,), "a": "ü"}, '{"a": "\\u00fc", "b": [1.24]}'),
        ((1.239, [1.239]), (1.24, [1.24])),
    ],
)
def test_cells(cell: Any, normalised: Any) -> None:
    assert preprocess_results([[cell]]) == [(normalised,)]


def test_places_are_an_argument_and_rows_become_tuples() -> None:
    assert preprocess_results([[1.25], (1.35,)], 1) == [(1.2,), (1.4,)]
    assert preprocess_results([[Decimal("2.5")]], 0) == [(Decimal("3"),)]


def test_what_has_no_form_raises() -> None:
    with pytest.raises(TypeError):
        preprocess_results(None)
    with pytest.raises(TypeError):
        preprocess_results([([Decimal("1")],)])


@pytest.mark.parametrize(
    ("pred", "gold", "conditions", "equal"),
    [
        ([(1,), (2,)], [(2,), (1,)], None, 1),
        ([(1,), (2,)], [(2,), (1,)], {"order": True}, 0),
        ([(1,), (2,)], [(2,), (1,)], {"order": "false"}, 0),
        ([(1,), (2,)], [(2,), (1,)], {"order": 0, "x": 1}, 1),
        ([(1,)], [(1,), (1,)], {}, 1),
        ([(1,)], [(1,), (1,)], {"order": True}, 0),
        ([], [], None, 0),
        ([], [(1,)], {"order": True}, 0),
        ([(1,)], [(1.0,)], None, 1),
        ([("1",)], [(1,)], None, 0),
        ([(b"a",)], [("a",)], None, 0),
        ([(None,)], [(None,)], None, 1),
        ([(-0.0,)], [(0,)], None, 1),
    ],
)
def test_equality(pred: list[Any], gold: list[Any], conditions: Any, equal: int) -> None:
    assert equal_results(pred, gold, conditions) == equal


@pytest.mark.parametrize("conditions", [[], "order", 5])
def test_conditions_of_another_kind_raise(conditions: Any) -> None:
    with pytest.raises(AttributeError):
        equal_results([(1,)], [(1,)], conditions)
