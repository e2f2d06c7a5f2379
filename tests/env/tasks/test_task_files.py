"""Files of tasks with gold merged in: what is kept, what is named, and that formats agree with each other."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bird_env.errors import DataError
from bird_env.tasks import Task, read_tasks
from bird_env.tasks.record import canonical_json

SHARED_TASKS = Path(__file__).parents[3] / "../shared/data/tasks/six_gym_sqlite_90.jsonl"
TEST = "def test_case(pred_sqls, sol_sqls, db_path, conn, conditions):\n    assert True"


def lines(path: Path, records: Sequence[Any]) -> Path:
    path.write_text("\n".join(json.dumps(record) for record in records))
    return path


def task(instance_id: str, **fields: Any) -> dict[str, Any]:
    return {"instance_id": instance_id, "db_id": "shop", "query": "?", "preprocess_sql": [], **fields}


def test_bad_records_are_named_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(
        "\n".join(
            [
                json.dumps(task("a")),
                "{not json",
                "",
                json.dumps(["no object"]),
                json.dumps({"db_id": "shop"}),
                json.dumps({"instance_id": "no-database"}),
                json.dumps(task("a", query="again")),
                json.dumps(task("odd", test_cases=None)),
                '{"instance_id": "deep", "db_id": "shop", "x": ' + "[" * 900 + "]" * 900 + "}",
                json.dumps(task("b")),
            ]
        )
    )
    found = read_tasks(path)
    assert [one.instance_id for one in found.tasks] == ["a", "odd", "b"]
    named = {problem.number: problem for problem in found.problems}
    assert {number: problem.dropped for number, problem in named.items()} == {
        2: True,
        4: True,
        5: True,
        6: True,
        7: True,
        8: False,
        9: True,
    }
    assert str(named[6]) == "line 6 (no-database): it names no database: neither selected_database nor db_id"
    assert "the same instance_id stands at line 1" in named[7].reason
    assert "test_cases is null" in named[8].reason
    assert "deep" in named[9].reason
    assert found.dropped == 6
    assert found.tasks[0].issue == "?"


def test_gold_is_merged_by_instance_id(tmp_path: Path) -> None:
    tasks = lines(tmp_path / "t", [task("a"), task("b", sol_sql=[], test_cases=[], category="Query"), task("c")])
    gold = lines(
        tmp_path / "g",
        [
            {
                "instance_id": "b",
                "sol_sql": "SELECT 2",
                "test_cases": [TEST],
                "category": "X",
                "conditions": {"order": 1},
            },
            {"instance_id": "a", "sol_sql": ["SELECT 1"], "preprocess_sql": ["CREATE TABLE t(a)"]},
            {"instance_id": "zzz", "sol_sql": ["SELECT 3"]},
            {"instance_id": "a", "sol_sql": ["SELECT 4"]},
            {"sol_sql": ["SELECT 5"]},
        ],
    )
    found = read_tasks(tasks, gold=gold)
    a, b, c = found.tasks
    assert (a.sol_sql, a.preprocess_sql, a.scorable) == (("SELECT 1",), ("CREATE TABLE t(a)",), True)
    assert (b.sol_sql, b.test_cases, b.conditions, b.category) == (("SELECT 2",), (TEST,), {"order": 1}, "Query")
    assert (c.scorable, c.sol_sql) == (False, ())
    assert "test_cases" not in a.record
    assert [str(problem) for problem in found.problems] == [
        "gold line 4 (a): the same instance_id stands at line 2; this one is left out",
        "gold line 5: it has no instance_id",
        "gold line 3 (zzz): gold for no task of this file",
    ]


def test_gold_replaces_other_gold_and_says_so_but_never_with_nothing(tmp_path: Path) -> None:
    tasks = lines(tmp_path / "t", [task("a", sol_sql=["SELECT 1"], test_cases=[TEST]), task("b", sol_sql=["SELECT 1"])])
    gold = lines(
        tmp_path / "g",
        [
            {"instance_id": "a", "sol_sql": ["SELECT 2"], "test_cases": []},
            {"instance_id": "b", "sol_sql": ["SELECT 1"]},
        ],
    )
    found = read_tasks(tasks, gold=gold)
    assert (found.tasks[0].sol_sql, found.tasks[0].test_cases) == (("SELECT 2",), (TEST,))
    assert [problem.reason for problem in found.problems] == [
        "its sol_sql replaces another that the task brings itself"
    ]
    assert found.dropped == 0


def test_gold_changes_the_digest(tmp_path: Path) -> None:
    tasks = lines(tmp_path / "t", [task("a")])
    gold = lines(tmp_path / "g", [{"instance_id": "a", "sol_sql": ["SELECT 1"]}])
    assert read_tasks(tasks).tasks[0].digest != read_tasks(tasks, gold=gold).tasks[0].digest


def test_bird_questions_take_gold_by_their_number(tmp_path: Path) -> None:
    tasks = tmp_path / "dev.json"
    tasks.write_text(json.dumps([{"question_id": 3, "db_id": "d", "question": "q?", "evidence": "e"}]))
    gold = lines(tmp_path / "g", [{"question_id": 3, "SQL": "SELECT 1"}])
    for format in ("auto", "bird"):
        (found,) = read_tasks(tasks, format=format, gold=gold).tasks
        assert (found.instance_id, found.issue, found.evidence) == ("bird_dev_3", "q?", "e")
        assert found.sol_sql == ("SELECT 1",)
        assert found.record["preprocess_sql"] == []


def test_a_given_format_is_not_guessed(tmp_path: Path) -> None:
    path = lines(tmp_path / "t", [{"question_id": 3, "db_id": "d", "question": "q?", "SQL": "SELECT 1"}])
    found = read_tasks(path, format="critic")
    assert found.tasks == ()
    assert [problem.reason for problem in found.problems] == ["it has no instance_id"]


@pytest.mark.parametrize("encoded", [False, True])
def test_parquet_gives_the_same_tasks_as_json_lines(tmp_path: Path, encoded: bool) -> None:
    arrow: Any = pytest.importorskip("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    records = [
        task("a", sol_sql=["SELECT 1", "SELECT 2"], issue_sql=[], test_cases=[TEST], conditions={"order": True}),
        task("b", sol_sql=[], category="Query"),
    ]

    def cell(value: Any) -> Any:
        return json.dumps(value) if encoded and isinstance(value, list | dict) else value

    rows = [{key: cell(value) for key, value in record.items()} for record in records]
    columns = sorted({key for row in rows for key in row})
    table = arrow.Table.from_pydict({key: [row.get(key) for row in rows] for key in columns})
    parquet.write_table(table, tmp_path / "p")
    assert read_tasks(tmp_path / "p").tasks == read_tasks(lines(tmp_path / "l", records)).tasks
    assert read_tasks(tmp_path / "p").problems == ()


def test_gold_from_parquet_for_tasks_from_json(tmp_path: Path) -> None:
    arrow: Any = pytest.importorskip("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    rows = [{"instance_id": "a", "sol_sql": ["SELECT 1"], "test_cases": None}]
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "g")
    (found,) = read_tasks(lines(tmp_path / "t", [task("a")]), gold=tmp_path / "g").tasks
    assert found.sol_sql == ("SELECT 1",)


def test_rows_of_bird_rl_from_parquet(tmp_path: Path) -> None:
    arrow: Any = pytest.importorskip("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    kwargs = {"execute_sql": {"create_kwargs": {"db_id": "shop"}}}
    rows = [
        {
            "data_source": "bird_critic_sqlite",
            "prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "Why?"}],
            "reward_model": {"ground_truth": ["SELECT 1"], "style": "rule"},
            "extra_info": {
                "instance_id": "a",
                "db_id": "shop",
                "preprocess_sql": ["CREATE TABLE t(a)"],
                "clean_up_sql": [],
                "test_cases": [TEST],
                "tools_kwargs": kwargs,
            },
            "agent_name": "tool_agent",
        },
        {
            "data_source": "bird",
            "prompt": [{"role": "user", "content": "How many?"}],
            "reward_model": {"ground_truth": ["SELECT 2"], "style": None},
            "extra_info": {"instance_id": "b", "db_id": "hr", "tools_kwargs": kwargs},
            "agent_name": None,
        },
        {"data_source": "bird", "extra_info": {"db_id": "hr"}},
    ]
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "train.parquet")
    found = read_tasks(tmp_path / "train.parquet")
    a, b = found.tasks
    assert (a.issue, a.sol_sql, a.test_cases, a.preprocess_sql) == (
        "Why?",
        ("SELECT 1",),
        (TEST,),
        ("CREATE TABLE t(a)",),
    )
    assert (b.issue, b.sol_sql, b.database, b.scorable) == ("How many?", ("SELECT 2",), "hr", True)
    assert "test_cases" not in b.record
    assert [str(problem) for problem in found.problems] == ["record 3: it has no instance_id"]


def test_an_absent_file_of_gold_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_tasks(lines(tmp_path / "t", [task("a")]), gold=tmp_path / "absent")


@pytest.mark.skipif(not SHARED_TASKS.exists(), reason="the real tasks are not beside the checkout")
def test_the_real_tasks_are_kept_word_for_word() -> None:
    found = read_tasks(SHARED_TASKS)
    raw = [json.loads(line) for line in SHARED_TASKS.read_text(encoding="utf-8").splitlines()]
    assert found.problems == ()
    assert len(found.tasks) == len(raw) == 90
    assert all(one.scorable for one in found.tasks)
    for one, published in zip(found.tasks, raw, strict=True):
        assert one.to_json() == canonical_json(published)
        assert Task.from_json(one.to_json()) == one
