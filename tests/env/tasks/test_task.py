"""A task as a view of its record: what is read from where, what a policy may see, what counts as gold."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bird_env.errors import DataError
from bird_env.tasks import Task

DEFAULT_LIKE = """
def test_case(pred_sqls, sol_sqls, db_path, conn, conditions):
    assert ex_base(pred_sqls, sol_sqls, db_path, conn)
"""
OWN_CHECK = (
    "def test_case(pred, sol, path, conn, **kw):\n    assert conn.execute('SELECT count(*) FROM t').fetchone()[0] == 3"
)

FULL: dict[str, Any] = {
    "instance_id": "shop_1",
    "selected_database": "shop",
    "db_id": "other",
    "category": "Query",
    "difficulty": "simple",
    "query": "Why is it \ud83d empty?\0",
    "evidence": "orders has one row an order",
    "issue_sql": "SELECT 1",
    "preprocess_sql": ["CREATE TABLE t(a)"],
    "clean_up_sql": ["DROP TABLE t"],
    "sol_sql": ["SELECT 2"],
    "test_cases": [DEFAULT_LIKE],
    "conditions": {"order": True},
}


def test_every_attribute_is_read_from_the_record() -> None:
    task = Task.from_record(FULL)
    assert (task.instance_id, task.database, task.category, task.difficulty) == ("shop_1", "shop", "Query", "simple")
    assert (task.issue, task.evidence) == (FULL["query"], FULL["evidence"])
    assert task.issue_sql == ("SELECT 1",)
    assert task.preprocess_sql == ("CREATE TABLE t(a)",)
    assert task.clean_up_sql == ("DROP TABLE t",)
    assert task.sol_sql == ("SELECT 2",)
    assert task.test_cases == (DEFAULT_LIKE,)
    assert task.conditions == {"order": True}
    assert task.scorable


def test_a_bare_record_invents_nothing() -> None:
    task = Task.from_record({"instance_id": "a", "db_id": "d"})
    assert task.record == {"instance_id": "a", "db_id": "d"}
    assert (task.issue, task.evidence, task.category, task.difficulty) == ("", None, None, None)
    assert (task.issue_sql, task.sol_sql, task.test_cases, task.conditions) == ((), (), (), {})
    assert not task.scorable


def test_a_policy_sees_neither_gold_nor_tests() -> None:
    shown = repr(Task.from_record(FULL).public())
    assert "SELECT 2" not in shown
    assert "test_case" not in shown
    public = Task.from_record(FULL).public()
    assert public.issue == FULL["query"]
    assert public.issue_sql == ["SELECT 1"]
    assert public.preprocess_sql == ["CREATE TABLE t(a)"]
    assert public.scorable


def test_json_gives_the_task_back_with_surrogates_and_nul() -> None:
    task = Task.from_record(FULL)
    again = Task.from_json(task.to_json())
    assert again == task
    assert hash(again) == hash(task)
    assert again.issue == FULL["query"]
    assert task.to_json().isascii()


def test_the_digest_is_of_the_content_and_not_of_the_order() -> None:
    task = Task.from_record(FULL)
    assert Task.from_record(dict(reversed(FULL.items()))).digest == task.digest
    assert Task.from_record({**FULL, "issue_sql": ["SELECT 1"]}).digest == task.digest
    assert Task.from_record({**FULL, "sol_sql": ["SELECT 3"]}).digest != task.digest
    assert Task.from_record({**FULL, "conditions": None}).digest != task.digest
    assert task != "a task"


@pytest.mark.parametrize(
    ("sol_sql", "tests", "scorable"),
    [
        (["SELECT 1"], [], True),
        (["SELECT 1"], None, True),
        ([], [], False),
        (["", "  "], [], False),
        ([None], [], False),
        ([], [DEFAULT_LIKE], False),
        ([], [OWN_CHECK], True),
        ([], [OWN_CHECK, DEFAULT_LIKE], False),
        ([], ["def test_case(*arguments, **kw): assert arguments[1]"], False),
        ([], ["def test_case(: nonsense"], False),
        ([], ["x = 1"], False),
        ([], [r"def test_case(p, s, d, c, **kw): assert '\d'"], True),
        ([], ["def test_case(p): pass"], False),
        ([], "xyz", False),
    ],
)
def test_scorable_is_what_can_be_judged_without_guessing(sol_sql: Any, tests: Any, scorable: bool) -> None:
    task = Task.from_record({"instance_id": "a", "db_id": "d", "sol_sql": sol_sql, "test_cases": tests})
    assert task.scorable is scorable


def test_entries_that_are_no_text_are_shown_and_kept() -> None:
    task = Task.from_record({"instance_id": "a", "db_id": "d", "preprocess_sql": [None, "x"], "test_cases": [3]})
    assert task.preprocess_sql == ("null", "x")
    assert task.test_cases == ("3",)
    assert task.record["preprocess_sql"] == [None, "x"]


def test_an_unusable_record_is_an_error_with_its_reason() -> None:
    with pytest.raises(DataError, match="no instance_id"):
        Task.from_record(json.loads("{}"))


def test_repr_is_short_and_tells_no_gold() -> None:
    assert repr(Task.from_record(FULL)) == "Task('shop_1', database='shop', scorable=True)"
