"""`bird-env tasks …`: what it does, what it says to people and to programs, and its exit codes."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bird_server.catalogue import Catalogue
from bird_server.demo_world import DATABASE, TASKS, build_database
from command_line import document, run

SHARED = Path(__file__).parents[2] / "../shared/data"
REAL_TASKS = SHARED / "tasks/six_gym_sqlite_90.jsonl"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def databases(tmp_path: Path) -> Path:
    folder = tmp_path / "databases"
    (folder / "shop").mkdir(parents=True)
    with closing(sqlite3.connect(folder / "shop/shop_template.sqlite")) as connection:
        connection.executescript("CREATE TABLE t(a); INSERT INTO t VALUES (1), (2);")
    return folder


def lines(path: Path, records: Sequence[Any]) -> Path:
    path.write_text("\n".join(record if isinstance(record, str) else json.dumps(record) for record in records))
    return path


def task(instance_id: str, **fields: Any) -> dict[str, Any]:
    return {
        "instance_id": instance_id,
        "db_id": "shop",
        "query": "Why [red]not[/red]?\nTell me.",
        "category": "Query",
        "preprocess_sql": [],
        "sol_sql": ["SELECT a FROM t"],
        "issue_sql": ["SELECT 1"],
        **fields,
    }


def test_import_brings_the_databases_that_the_tasks_need(tmp_path: Path, data: Path, databases: Path) -> None:
    file = lines(tmp_path / "t", [task("a"), task("b")])
    result = run("tasks", "import", file, "--databases", databases, "--data", data)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "1 databases imported" in result.stdout
    assert result.stdout.splitlines()[-1] == "2 tasks imported: 2 added, 0 replaced, 0 unchanged"


def test_import_as_json(tmp_path: Path, data: Path, databases: Path) -> None:
    file = lines(tmp_path / "t", [task("a"), "{bad", task("b", sol_sql=[]), task("c", db_id="gone")])
    result = run("tasks", "import", file, "--databases", databases, "--data", data, "--json")
    assert result.exit_code == 1
    told = document(result)
    assert [one["database"] for one in told["databases"]["imported"]] == ["shop"]
    assert (told["added"], told["replaced"], told["unchanged"]) == (3, [], 0)
    assert (told["scorable"], told["unscorable"]) == (2, ["b"])
    assert told["missing_databases"] == {"gone": 1}
    (problem,) = told["problems"]
    assert (problem["source"], problem["unit"], problem["number"], problem["dropped"]) == ("tasks", "line", 2, True)
    assert "not JSON" in problem["reason"]


def test_import_names_what_is_wrong_and_takes_the_rest(tmp_path: Path, data: Path) -> None:
    file = lines(tmp_path / "t", [task("a"), {"instance_id": "x"}, task("b", sol_sql=[])])
    result = run("tasks", "import", file, "--data", data)
    assert result.exit_code == 1
    assert "line 2 (x): it names no database" in result.stderr
    assert "1 tasks have no gold" in result.stderr
    assert "shop: 2 tasks are on it, but it was not imported" in result.stderr
    assert result.stdout == "2 tasks imported: 2 added, 0 replaced, 0 unchanged, 1 records left out\n"


def test_gold_is_merged_and_replaces_what_was_imported(tmp_path: Path, data: Path) -> None:
    file = lines(tmp_path / "t", [task("a", sol_sql=[]), task("b")])
    gold = lines(tmp_path / "g", [{"instance_id": "a", "sol_sql": ["SELECT 2"]}])
    assert run("tasks", "import", file, "--data", data).exit_code == 0
    assert document(run("tasks", "list", "--unscorable", "--data", data, "--json"))["tasks"][0]["task_id"] == "a"
    result = run("tasks", "import", file, "--gold", gold, "--data", data)
    assert result.exit_code == 0
    assert "1 tasks were there with other content: a" in result.stderr
    assert "2 tasks imported: 0 added, 1 replaced, 1 unchanged" in result.stdout
    assert document(run("tasks", "list", "--unscorable", "--data", data, "--json")) == {"tasks": []}


@pytest.mark.parametrize("content", ["", "[]", "{bad"])
def test_a_file_without_a_task_is_exit_code_1(tmp_path: Path, data: Path, content: str) -> None:
    (tmp_path / "t").write_text(content)
    assert run("tasks", "import", tmp_path / "t", "--data", data).exit_code == 1


def test_a_file_that_cannot_be_read_is_exit_code_2(tmp_path: Path, data: Path) -> None:
    result = run("tasks", "import", tmp_path / "absent", "--data", data)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "cannot be read" in result.stderr


def test_a_folder_of_databases_that_is_not_there_imports_nothing(tmp_path: Path, data: Path) -> None:
    file = lines(tmp_path / "t", [task("a")])
    result = run("tasks", "import", file, "--databases", tmp_path / "absent", "--data", data)
    assert result.exit_code == 2
    assert "absent does not exist" in result.stderr
    assert not data.exists()


def test_bird_questions(tmp_path: Path, data: Path) -> None:
    questions = [{"question_id": 7, "db_id": "shop", "question": "q?", "SQL": "SELECT 1", "difficulty": "simple"}]
    (tmp_path / "dev.json").write_text(json.dumps(questions))
    assert run("tasks", "import", tmp_path / "dev.json", "--format", "bird", "--data", data).exit_code == 0
    shown = document(run("tasks", "show", "bird_dev_7", "--data", data, "--json"))
    assert (shown["issue"], shown["difficulty"], shown["scorable"]) == ("q?", "simple", True)


def test_list_filters_and_shows_texts_as_they_are(tmp_path: Path, data: Path) -> None:
    records = [task("a"), task("b", category="Management"), task("c", db_id="hr", query="\ud800\0\x1b[31m")]
    run("tasks", "import", lines(tmp_path / "t", records), "--data", data)

    def ids(*options: str) -> list[str]:
        return [one["task_id"] for one in document(run("tasks", "list", *options, "--data", data, "--json"))["tasks"]]

    assert ids() == ["a", "b", "c"]
    assert ids("--category", "Query") == ["a", "c"]
    assert ids("--database", "hr") == ["c"]
    assert ids("--limit", "2") == ["a", "b"]
    table = run("tasks", "list", "--data", data).stdout
    assert "[red]" in table
    assert "\x1b" not in table


def test_show_keeps_gold_back_unless_it_is_asked_for(tmp_path: Path, data: Path) -> None:
    test = "def test_case(pred_sqls, sol_sqls, db_path, conn, conditions):\n    secret = 1"
    records = [task("a", sol_sql=["SELECT 'gold'"], test_cases=[test], conditions={"order": True})]
    run("tasks", "import", lines(tmp_path / "t", records), "--data", data)
    for options in ([], ["--json"]):
        plain = run("tasks", "show", "a", "--data", data, *options).stdout
        assert "Why" in plain
        assert "gold" not in plain
        assert "secret" not in plain
        full = run("tasks", "show", "a", "--gold", "--data", data, *options).stdout
        assert "SELECT 'gold'" in full
        assert "secret" in full
        assert "order" in full
    assert run("tasks", "show", "absent", "--data", data).exit_code == 2


def test_validate_lists_the_broken_with_their_cause(tmp_path: Path, data: Path, databases: Path) -> None:
    records = [
        task("sound"),
        task("gold-errs", sol_sql=["SELECT nope"]),
        task("issue-passes", issue_sql=["SELECT a FROM t"]),
        task("no-gold", sol_sql=[]),
        task("no-database", db_id="gone"),
    ]
    file = lines(tmp_path / "t", records)
    run("tasks", "import", file, "--databases", databases, "--data", data)
    of_data = run("tasks", "validate", "--data", data)
    of_files = run("tasks", "validate", "--tasks", file, "--databases", databases)
    for result in (of_data, of_files):
        assert result.exit_code == 1
        assert result.stdout.splitlines()[-1] == "1 gold pass, 2 issue fail"
        assert "3 broken tasks" in result.stdout
        assert "1 tasks have no gold and were not checked: no-gold" in result.stderr
    told = document(run("tasks", "validate", "--data", data, "--json", "--workers", 1))
    assert told["tasks"] == 5
    assert told["gold"] == {"pass": 1, "fail": 2, "unchecked": 1}
    assert told["issue"] == {"fail": 2, "pass": 1, "unchecked": 1}
    causes = {one["instance_id"]: " ".join(one["causes"]) for one in told["broken"]}
    assert set(causes) == {"gold-errs", "issue-passes", "no-database"}
    assert "no such column: nope" in causes["gold-errs"]
    assert "nothing to mend" in causes["issue-passes"]
    assert "gone" in causes["no-database"]


def test_validate_needs_tasks_and_databases_together(tmp_path: Path, data: Path) -> None:
    file = lines(tmp_path / "t", [task("a")])
    assert run("tasks", "validate", "--tasks", file).exit_code == 2
    assert run("tasks", "validate", "--databases", tmp_path).exit_code == 2
    assert run("tasks", "validate", "--gold", file, "--data", data).exit_code == 2
    with Catalogue(data):
        nothing = run("tasks", "validate", "--data", data)
    assert nothing.exit_code == 2
    assert "no task to validate" in nothing.stderr


def test_the_demonstrations_tasks_are_sound_through_the_command(tmp_path: Path, data: Path) -> None:
    build_database(tmp_path / f"{DATABASE}.sqlite")
    file = lines(tmp_path / "tasks.jsonl", TASKS)
    assert run("tasks", "import", file, "--databases", tmp_path, "--data", data).exit_code == 0
    result = run("tasks", "validate", "--data", data)
    assert (result.exit_code, result.stdout) == (0, f"{len(TASKS)} gold pass, {len(TASKS)} issue fail\n")


@pytest.mark.skipif(not REAL_TASKS.exists(), reason="the real tasks are not beside the checkout")
def test_the_real_tasks_are_sound(data: Path) -> None:
    imported = run("tasks", "import", REAL_TASKS, "--databases", SHARED / "databases", "--data", data)
    assert imported.exit_code == 0
    assert re.search(r"^90 tasks imported: 90 added", imported.stdout, re.MULTILINE)
    result = run("tasks", "validate", "--data", data)
    assert (result.exit_code, result.stdout) == (0, "90 gold pass, 90 issue fail\n")
