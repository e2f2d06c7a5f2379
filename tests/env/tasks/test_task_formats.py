"""The published formats under the evaluator's names."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bird_env.errors import DataError
from bird_env.tasks.formats import to_record

DEV = {
    "question_id": 12,
    "db_id": "california_schools",
    "question": "How many schools?",
    "evidence": "",
    "SQL": "SELECT count(*) FROM schools",
    "difficulty": "simple",
}


def test_a_critic_record_stays_as_it_is() -> None:
    raw = {"instance_id": "SQLite_1", "db_id": "d", "query": "q", "anything": [1], "sol_sql": None}
    assert to_record(raw, 0) == raw


def test_a_dev_question() -> None:
    assert to_record(DEV, 5) == {
        "instance_id": "bird_dev_12",
        "db_id": "california_schools",
        "query": "How many schools?",
        "evidence": "",
        "difficulty": "simple",
        "sol_sql": ["SELECT count(*) FROM schools"],
        "preprocess_sql": [],
    }


def test_a_train_question_is_numbered_by_its_place() -> None:
    raw = {"db_id": "movies", "question": "q", "evidence": "e", "SQL": "SELECT 1;"}
    assert to_record(raw, 7)["instance_id"] == "bird_train_7"


@pytest.mark.parametrize(("sql", "gold"), [(None, []), ("", []), (" ", []), ("SELECT 1", ["SELECT 1"])])
def test_a_question_without_sql_has_no_gold(sql: str | None, gold: list[str]) -> None:
    assert to_record({**DEV, "SQL": sql}, 0)["sol_sql"] == gold
    without = {key: value for key, value in DEV.items() if key != "SQL"}
    assert to_record(without, 0)["sol_sql"] == []


@pytest.mark.parametrize(("given", "named"), [(3, "bird_dev_3"), ("3", "bird_dev_3"), ("x-3", "bird_dev_x-3")])
def test_question_ids_of_either_type(given: Any, named: str) -> None:
    assert to_record({**DEV, "question_id": given}, 0)["instance_id"] == named


def test_an_instance_id_of_its_own_is_kept_when_the_format_is_given() -> None:
    assert to_record({**DEV, "instance_id": "mine"}, 0, format="bird")["instance_id"] == "mine"


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (None, "null, not an object"),
        ([1], "list, not an object"),
        ("x", "str, not an object"),
        ({**DEV, "SQL": ["SELECT 1"]}, "SQL is not a text"),
        ({**DEV, "question_id": True}, "question_id"),
        ({**DEV, "question_id": [1]}, "question_id"),
        ({"data_source": "bird", "extra_info": "{bad"}, "extra_info is a text that is not JSON"),
        ({"data_source": "bird", "extra_info": [1]}, "extra_info is not an object"),
    ],
)
def test_what_fits_no_format_is_refused_by_reason(raw: Any, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        to_record(raw, 0)


RL: dict[str, Any] = {
    "data_source": "bird_critic_sqlite",
    "prompt": [
        {"role": "system", "content": "You are a SQL expert."},
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "?"},
        {"role": "user", "content": "Why is it empty?"},
    ],
    "ability": "sql",
    "reward_model": {"style": "rule", "ground_truth": ["SELECT 2"], "test_cases": None},
    "extra_info": {
        "instance_id": "TRAIN_1",
        "db_id": "chinook",
        "preprocess_sql": ["CREATE TABLE t(a)"],
        "clean_up_sql": [],
        "test_cases": ["def test_case(): ..."],
        "index": 0,
        "tools_kwargs": {"execute_sql": {"create_kwargs": {"db_id": "chinook"}}},
    },
    "agent_name": "tool_agent",
}


def test_a_row_of_bird_rl() -> None:
    assert to_record(RL, 0) == {
        "instance_id": "TRAIN_1",
        "db_id": "chinook",
        "data_source": "bird_critic_sqlite",
        "query": "Why is it empty?",
        "preprocess_sql": ["CREATE TABLE t(a)"],
        "clean_up_sql": [],
        "sol_sql": ["SELECT 2"],
        "test_cases": ["def test_case(): ..."],
    }


def test_a_row_of_bird_rl_with_json_in_strings_and_a_text_for_gold() -> None:
    raw = {
        **RL,
        "prompt": "Why?",
        "extra_info": json.dumps({**RL["extra_info"], "test_cases": [], "issue_sql": ["SELECT 1"]}),
        "reward_model": {"ground_truth": "SELECT 2", "test_cases": ["def test_case(): ..."]},
    }
    record = to_record(raw, 0)
    assert (record["sol_sql"], record["query"]) == ("SELECT 2", "Why?")
    assert record["test_cases"] == ["def test_case(): ..."]
    assert record["issue_sql"] == ["SELECT 1"]


def test_a_row_of_bird_rl_that_says_little_invents_little() -> None:
    record = to_record({"data_source": "bird", "extra_info": {"instance_id": "a", "db_id": "d"}}, 0)
    assert record == {"instance_id": "a", "db_id": "d", "data_source": "bird", "preprocess_sql": [], "sol_sql": []}


def test_a_question_in_a_row_of_bird_rl_wins_over_the_prompt() -> None:
    raw = {**RL, "extra_info": {**RL["extra_info"], "question": "the question itself"}}
    assert to_record(raw, 0)["query"] == "the question itself"


def test_a_null_of_a_table_is_a_field_that_is_not_there() -> None:
    row = {
        "instance_id": "a",
        "db_id": "d",
        "selected_database": None,
        "test_cases": None,
        "sol_sql": None,
        "preprocess_sql": None,
        "conditions": {"order": True, "decimal": None},
    }
    assert to_record(row, 0, table=True) == {
        "instance_id": "a",
        "db_id": "d",
        "sol_sql": None,
        "preprocess_sql": None,
        "conditions": {"order": True},
    }
    assert to_record(row, 0) == row


def test_conditions_in_a_column_of_texts() -> None:
    row = {"instance_id": "a", "db_id": "d", "conditions": '{"order": true}'}
    assert to_record(row, 0, table=True)["conditions"] == {"order": True}
    assert to_record(row, 0)["conditions"] == '{"order": true}'
    with pytest.raises(DataError, match="conditions is a text that is not JSON"):
        to_record({**row, "conditions": "order"}, 0, table=True)
