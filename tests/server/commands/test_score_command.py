"""`bird-env score` and `bird-env conformance` as a user runs them: files in, files and exit codes out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from command_line import run
from server.scoring.support import make_database


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with tasks, gold, databases and predictions."""
    (tmp_path / "databases" / "shop").mkdir(parents=True)
    make_database(tmp_path / "databases" / "shop" / "shop_template.sqlite")
    base = {"db_id": "shop", "preprocess_sql": [], "query": "How many?", "issue_sql": ["SELECT nope"]}
    tasks = [
        {**base, "instance_id": "one", "category": "Query", "sol_sql": ["SELECT count(*) FROM t"]},
        {**base, "instance_id": "two", "category": "Management", "sol_sql": ["SELECT max(a) FROM t"]},
        {**base, "instance_id": "three", "sol_sql": ["SELECT min(a) FROM t"]},
    ]
    write_lines(tmp_path / "tasks.jsonl", tasks)
    write_lines(
        tmp_path / "predictions.jsonl",
        [{"instance_id": "one", "pred_sqls": ["SELECT 3"]}, {"instance_id": "two", "pred_sqls": "SELECT 4"}],
    )
    return tmp_path


def write_lines(path: Path, objects: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(each) + "\n" for each in objects), encoding="utf-8")


def score(files: Path, *more: str | Path) -> Result:
    named: list[str | Path] = [
        "--tasks",
        files / "tasks.jsonl",
        "--databases",
        files / "databases",
        "--out",
        files / "out",
    ]
    return run("score", *named, *more)


def verdicts(files: Path) -> dict[str, Any]:
    lines = (files / "out" / "verdicts.jsonl").read_text(encoding="utf-8").splitlines()
    return {line["instance_id"]: line["official"] for line in map(json.loads, lines)}


def test_a_file_of_predictions_is_scored_and_reported(files: Path) -> None:
    result = score(files, "--predictions", files / "predictions.jsonl", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["success"], told["total"], told["missing"], told["reused"]) == (1, 3, ["three"], 0)
    assert {name: each["status"] for name, each in verdicts(files).items()} == {
        "one": "success",
        "two": "failed",
        "three": "failed",
    }
    report = (files / "out" / "report.txt").read_text(encoding="utf-8")
    assert "Overall Accuracy: 33.33%" in report
    assert "  three" in report
    assert sorted(path.name for path in (files / "out").iterdir()) == ["report.txt", "verdicts.jsonl"]


def test_a_second_run_resumes_after_a_kill_in_mid_write(files: Path) -> None:
    predictions = files / "predictions.jsonl"
    score(files, "--predictions", predictions)
    first = verdicts(files)
    path = files / "out" / "verdicts.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    (files / "out" / ".templates-left").mkdir()
    result = score(files, "--predictions", predictions, "--json")
    assert json.loads(result.stdout)["reused"] == 2
    assert verdicts(files) == first
    assert not (files / "out" / ".templates-left").exists()


def test_gold_is_judged_without_predictions(files: Path) -> None:
    result = score(files, "--mode", "gold", "--workers", "1")
    assert result.exit_code == 0, result.output
    assert "All                         3        3    100.00%" in result.stdout


def test_a_task_without_gold_is_not_scored_and_gold_can_be_merged_in(files: Path) -> None:
    tasks = [json.loads(line) for line in (files / "tasks.jsonl").read_text(encoding="utf-8").splitlines()]
    write_lines(files / "gold.jsonl", [{"instance_id": "one", "sol_sql": tasks[0]["sol_sql"], "test_cases": []}])
    write_lines(files / "tasks.jsonl", [{**task, "sol_sql": []} for task in tasks])
    result = score(files, "--predictions", files / "predictions.jsonl", "--gold", files / "gold.jsonl", "--json")
    assert result.exit_code == 2
    told = json.loads(result.stdout)
    assert (told["success"], told["total"]) == (1, 1)
    assert [each["instance_id"] for each in told["unscorable"]] == ["two", "three"]
    assert "not scored: two" in result.stderr


def test_a_missing_database_is_told_and_exits_with_2(files: Path) -> None:
    (files / "databases" / "shop" / "shop_template.sqlite").unlink()
    result = score(files, "--mode", "gold")
    assert result.exit_code == 2
    assert "there is no database 'shop'" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--predictions", "nothing.jsonl"],
        [],
        ["--mode", "gold", "--tasks", "nothing.jsonl"],
        ["--mode", "gold", "--databases", "nothing"],
    ],
)
def test_unusable_input_exits_with_2(files: Path, arguments: list[str]) -> None:
    result = score(files, *arguments)
    assert result.exit_code == 2
    assert result.stderr.strip()
    assert "Traceback" not in result.output


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    (tmp_path / "db.sql").write_text("CREATE TABLE t(a); INSERT INTO t VALUES (1);", encoding="utf-8")
    expected = {"status": "success", "passed": 1, "total": 0, "failed_tests": []}
    task = {"db_id": "db", "preprocess_sql": [], "sol_sql": ["SELECT a FROM t"]}
    base = {"database": "db.sql", "task": task, "expected": expected, "why": "because"}
    write_lines(
        tmp_path / "cases.jsonl",
        [{**base, "id": "good", "pred_sqls": ["SELECT 1"]}, {**base, "id": "bad", "pred_sqls": ["SELECT 2"]}],
    )
    return tmp_path / "cases.jsonl"


def test_conformance_prints_mismatches_and_the_count_last(cases: Path) -> None:
    result = run("conformance", cases)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == 'bad status: expected "success", got "failed"  (because)'
    assert lines[-1] == "1 of 2"


def test_conformance_as_json(cases: Path) -> None:
    result = run("conformance", cases, "--json", "--workers", "1")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["matched"], told["total"]) == (1, 1, 2)
    assert {mismatch["id"] for mismatch in told["mismatches"]} == {"bad"}


def test_conformance_without_a_mismatch_exits_with_0(cases: Path) -> None:
    cases.write_text(cases.read_text(encoding="utf-8").splitlines()[0], encoding="utf-8")
    result = run("conformance", cases)
    assert (result.exit_code, result.stdout) == (0, "1 of 1\n")


def test_conformance_on_unusable_input_exits_with_2(tmp_path: Path) -> None:
    result = run("conformance", tmp_path / "nothing.jsonl")
    assert result.exit_code == 2
    assert "cannot be read" in result.stderr
