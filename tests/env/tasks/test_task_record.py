"""Records in the evaluator's form: presence of keys, what fields may hold, and what is said of odd ones."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bird_env.errors import DataError
from bird_env.tasks.record import canonical, canonical_json, decode_list, plain, without_nulls


class Array:
    """What numpy's arrays and scalars look like from outside."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def tolist(self) -> Any:
        return self._value


def minimal(**fields: Any) -> dict[str, Any]:
    return {"instance_id": "a", "db_id": "shop", **fields}


def test_keys_that_are_absent_stay_absent() -> None:
    record, remarks = canonical(minimal())
    assert record == {"instance_id": "a", "db_id": "shop"}
    assert remarks == []


@pytest.mark.parametrize("key", ["preprocess_sql", "issue_sql", "sol_sql", "clean_up_sql"])
@pytest.mark.parametrize(
    ("given_value", "kept"),
    [
        (None, []),
        ("", []),
        ([], []),
        ({}, []),
        (0, []),
        ("SELECT 1; SELECT 2", ["SELECT 1; SELECT 2"]),
        ("SELECT 1 [split] SELECT 2", ["SELECT 1 [split] SELECT 2"]),
        ("  SELECT 1\n", ["  SELECT 1\n"]),
        (["a", "b"], ["a", "b"]),
        (("a", "b"), ["a", "b"]),
        (Array(["a", "b"]), ["a", "b"]),
        ('["a", "b"]', ["a", "b"]),
        (' ["a; b"] ', ["a; b"]),
        ("[]", []),
        ("[id] is a column", ["[id] is a column"]),
        ("[1, 2]", ["[1, 2]"]),
    ],
)
def test_statements_follow_the_evaluators_rules(key: str, given_value: Any, kept: list[str]) -> None:
    record, remarks = canonical(minimal(**{key: given_value}))
    assert record[key] == kept
    assert remarks == []


def test_what_the_evaluator_takes_for_no_statement_is_remarked() -> None:
    record, remarks = canonical(minimal(sol_sql={"sql": "SELECT 1"}, issue_sql=[None, "SELECT 1"]))
    assert record["sol_sql"] == []
    assert record["issue_sql"] == [None, "SELECT 1"]
    assert len(remarks) == 2
    assert any("sol_sql is an object" in remark for remark in remarks)
    assert any("issue_sql holds null" in remark for remark in remarks)


@pytest.mark.parametrize(
    ("tests", "kept", "remark"),
    [
        ([], [], None),
        (["def test_case(): ..."], ["def test_case(): ..."], None),
        (Array(["x"]), ["x"], None),
        ('["x", "y"]', ["x", "y"], None),
        (None, None, "null"),
        ("xyz", "xyz", "each character"),
        ("", "", None),
        ([None], [None], "holds null"),
    ],
)
def test_tests_keep_the_form_that_the_evaluator_judges(tests: Any, kept: Any, remark: str | None) -> None:
    record, remarks = canonical(minimal(test_cases=tests))
    assert record["test_cases"] == kept
    assert [remark in said for said in remarks] == ([] if remark is None else [True])  # type: ignore[operator]  # None has no remarks


@pytest.mark.parametrize("conditions", [None, {}, {"order": True}, [], "order", 3, {"a": [{"b": None}]}])
def test_conditions_pass_unchanged(conditions: Any) -> None:
    assert canonical(minimal(conditions=conditions))[0]["conditions"] == conditions


def test_selected_database_wins_over_db_id() -> None:
    record, _ = canonical({"instance_id": "a", "db_id": "one", "selected_database": "two"})
    assert record == {"instance_id": "a", "db_id": "one", "selected_database": "two"}


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ({"db_id": "shop"}, "no instance_id"),
        ({"instance_id": None, "db_id": "shop"}, "no instance_id"),
        ({"instance_id": "", "db_id": "shop"}, "no instance_id"),
        ({"instance_id": ["a"], "db_id": "shop"}, "instance_id is a list"),
        ({"instance_id": True, "db_id": "shop"}, "instance_id is true or false"),
        ({"instance_id": "a\0b", "db_id": "shop"}, "instance_id"),
        ({"instance_id": "\ud800", "db_id": "shop"}, "instance_id"),
        ({"instance_id": "a"}, "neither selected_database nor db_id"),
        ({"instance_id": "a", "db_id": None}, "db_id is empty"),
        ({"instance_id": "a", "db_id": 7}, "db_id is a number"),
        ({"instance_id": "a", "db_id": "x\0"}, "db_id"),
        ({"instance_id": "a", "db_id": "shop", "selected_database": None}, "wins over db_id"),
        ({"instance_id": "a", "db_id": "shop", "test_cases": 5}, "test_cases is a number"),
        ({"instance_id": "a", "db_id": "shop", "test_cases": {"a": 1}}, "test_cases is an object"),
        ({"instance_id": "a", "db_id": "shop", "query": ["x"]}, "query is a list"),
        ({"instance_id": "a", "db_id": "shop", "category": {}}, "category is an object"),
    ],
)
def test_a_record_nothing_can_be_done_with_is_refused_by_reason(raw: dict[str, Any], reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        canonical(raw)


def test_an_entry_of_gold_needs_no_database() -> None:
    assert canonical({"instance_id": 7, "sol_sql": "x"}, partial=True)[0] == {"instance_id": "7", "sol_sql": ["x"]}


def test_plain_gives_json_for_what_other_libraries_bring() -> None:
    raw = {
        1: Array([Array(2), float("nan")]),
        "bytes": "é".encode(),
        "when": datetime.date(2024, 2, 29),
        "price": decimal.Decimal("1.50"),
        "pair": (1, True, None, 1.5),
    }
    assert plain(raw) == {
        "1": [2, None],
        "bytes": "é",
        "when": "2024-02-29",
        "price": "1.50",
        "pair": [1, True, None, 1.5],
    }


def test_nulls_of_a_table_go_but_those_in_lists_stay() -> None:
    assert without_nulls({"a": None, "b": {"c": None, "d": 0}, "e": [None, {"f": None}]}) == {
        "b": {"d": 0},
        "e": [None, {"f": None}],
    }


@pytest.mark.parametrize("text", ["[", "[[[", "[1]", '["a", 1]', "SELECT '[]'", '{"a": 1}', "[" * 100_000])
def test_a_text_that_spells_no_list_of_texts_stays_a_text(text: str) -> None:
    assert decode_list(text) == text


texts = st.text(st.characters(codec=None), max_size=20)
records = st.fixed_dictionaries(
    {"instance_id": st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), "db_id": st.just("d")},
    optional={
        "query": texts,
        "sol_sql": st.lists(texts, max_size=3) | texts,
        "preprocess_sql": st.none() | st.lists(texts, max_size=2),
        "test_cases": st.lists(texts, max_size=2),
        "conditions": st.recursive(
            st.none() | st.booleans() | st.integers() | texts,
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
            max_leaves=5,
        ),
    },
)


@given(records)
def test_a_canonical_record_is_a_fixed_point_and_survives_its_json(raw: dict[str, Any]) -> None:
    record, _ = canonical(raw)
    assert canonical(record)[0] == record
    text = canonical_json(record)
    assert text.isascii()
    assert json.loads(text) == record
