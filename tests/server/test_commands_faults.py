"""What every command says of paths that cannot be used, and of Ctrl-C: a line, an exit code, one JSON document."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pytest
from sqlalchemy.exc import OperationalError
from typer.testing import Result

from bird_server.catalogue import Catalogue
from bird_server.commands._output import LINES_SHOWN
from command_line import document, run

#: Commands with `--json` that work on a data directory, as far as they need no more than one.
ON_DATA = {
    "databases list": ["databases", "list"],
    "databases verify": ["databases", "verify"],
    "databases remove": ["databases", "remove", "--unused"],
    "tasks list": ["tasks", "list"],
    "tasks show": ["tasks", "show", "a"],
    "tasks validate": ["tasks", "validate"],
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BIRD_ENV_DATA", raising=False)
    return tmp_path


def make(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t(a)")
        connection.commit()
    return path


def error(result: Result) -> dict[str, Any]:
    """The error's document, once people are told the same in one line."""
    (problem,) = document(result).values()
    assert set(problem) == {"code", "detail", "hint"}
    assert problem["detail"].rstrip(".") in result.stderr
    assert result.stderr.count("\n") == 1
    return dict(problem)


@pytest.mark.parametrize("command", ON_DATA)
def test_a_data_directory_that_is_not_there_is_said_and_not_made(here: Path, command: str) -> None:
    result = run(*ON_DATA[command], "--data", "none", "--json")
    assert result.exit_code == 2
    told = error(result)
    assert told["code"] == "data_error"
    assert "none does not exist" in told["detail"]
    assert "--data" in told["hint"]
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("command", [*ON_DATA, "databases import", "tasks import"])
@pytest.mark.parametrize("data", ["file", "file/below", "/proc/none"])
def test_a_data_directory_that_cannot_be_one(here: Path, command: str, data: str) -> None:
    make(here / "shop.db")
    (here / "file").touch()
    (here / "tasks.jsonl").write_text('{"instance_id": "a", "db_id": "shop"}\n')
    more = {"databases import": ["databases", "import", "shop.db"], "tasks import": ["tasks", "import", "tasks.jsonl"]}
    result = run(*(ON_DATA | more)[command], "--data", data, "--json")
    assert result.exit_code == 2
    assert error(result)["hint"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["databases", "list", "--nothing"], "usage"),
        (["databases", "remove"], "usage"),
        (["databases", "nothing"], "usage"),
        (["tasks", "show"], "usage"),
        (["tasks", "list", "--limit", "many"], "usage"),
        (["tasks", "validate", "--gold", "x"], "usage"),
        (["tasks", "import", "none.jsonl"], "data_error"),
        (["databases", "import", "none.db"], "data_error"),
        (["conformance", "none.jsonl"], "data_error"),
        (["score", "--tasks", "t", "--databases", "d", "--out", "o"], "usage"),
        (["score", "--tasks", "t", "--databases", "d", "--out", "o", "--mode", "gold"], "data_error"),
        (["score", "--mode", "gold"], "usage"),
        (["demo", "--trajectories", "0"], "usage"),
        (["bench", "replicas", "--folder", "none"], "os_error"),
        (["doctor", "--size", "0"], "usage"),
        (["nothing"], "usage"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_whatever_goes_wrong_standard_output_is_one_document(here: Path, arguments: list[str], code: str) -> None:
    result = run(*arguments, "--json")
    assert result.exit_code == 2
    assert document(result)["error"]["code"] == code
    assert document(result)["error"]["detail"]
    assert result.stderr
    plain = run(*arguments)
    assert (plain.exit_code, plain.stdout) == (2, "")
    assert plain.stderr


def test_an_output_folder_that_cannot_be_written_is_said(here: Path) -> None:
    make(here / "shop.db")
    (here / "tasks.jsonl").write_text('{"instance_id": "a", "db_id": "shop"}\n')
    given = ["score", "--tasks", "tasks.jsonl", "--databases", ".", "--mode", "gold", "--json"]
    for out in ("/proc/none", "tasks.jsonl", "tasks.jsonl/below"):
        result = run(*given, "--out", out)
        assert result.exit_code == 2
        assert out in error(result)["detail"]


def test_a_path_without_a_database_does_not_keep_the_others_out(here: Path) -> None:
    make(here / "shop.db")
    (here / "hollow").mkdir()
    result = run("databases", "import", "none.db", "hollow", "shop.db", "--data", "data", "--json")
    assert result.exit_code == 1
    told = document(result)
    assert [one["database"] for one in told["imported"]] == ["shop"]
    assert [(one["source"], one["code"]) for one in told["failed"]] == [
        ("none.db", "data_error"),
        ("hollow", "data_error"),
    ]
    plain = run("databases", "import", "none.db", "shop.db", "--data", "data")
    assert plain.exit_code == 1
    assert "none.db: not imported: none.db does not exist." in plain.stderr


def test_paths_of_which_none_holds_a_database_make_no_data_directory(here: Path) -> None:
    result = run("databases", "import", "none.db", "gone.db", "--data", "data", "--json")
    assert result.exit_code == 2
    assert error(result)["detail"] == "none.db does not exist; gone.db does not exist"
    assert not (here / "data").exists()


@pytest.mark.parametrize("name", ["empty.jsonl", "empty", "empty.txt"])
def test_an_empty_file_is_no_database_unless_its_name_says_so(here: Path, name: str) -> None:
    (here / name).touch()
    alone = run("databases", "import", name, "--data", "data", "--json")
    assert alone.exit_code == 2
    assert "0 bytes" in error(alone)["detail"]
    assert ".sqlite" in error(alone)["hint"]
    make(here / "shop.db")
    result = run("databases", "import", name, "shop.db", "--data", "data", "--json")
    assert (result.exit_code, document(result)["failed"][0]["code"]) == (1, "empty_file")
    assert [one["database"] for one in document(result)["imported"]] == ["shop"]


@pytest.mark.parametrize("suffix", [".sqlite", ".sqlite3", ".db"])
def test_an_empty_database_is_one_and_is_remarked(here: Path, suffix: str) -> None:
    (here / f"empty{suffix}").touch()
    make(here / "shop.db")
    result = run("databases", "import", f"empty{suffix}", "shop.db", "--data", "data", "--json")
    assert result.exit_code == 0
    remarks = {one["database"]: one["remark"] for one in document(result)["imported"]}
    assert remarks == {"empty": "the file has 0 bytes: an empty database", "shop": None}
    plain = run("databases", "import", f"empty{suffix}", "--data", "data")
    assert plain.stderr.count("0 bytes") == 1


def test_a_name_needs_one_path_and_a_database_at_it(here: Path) -> None:
    make(here / "shop.db")
    result = run("databases", "import", "shop.db", "none.db", "--name", "x", "--data", "data")
    assert result.exit_code == 2
    assert "here are 2" in result.stderr


def test_a_database_given_as_tasks_is_known_at_once(here: Path) -> None:
    make(here / "shop.db")
    result = run("tasks", "import", "shop.db", "--data", "data", "--json")
    assert result.exit_code == 2
    told = error(result)
    assert "shop.db is a SQLite database" in told["detail"]
    assert "databases import" in told["hint"]


@pytest.mark.parametrize(
    ("content", "words"), [("", "is empty (0 bytes)"), ("\n \n", "no record"), ("[]", "no record")]
)
def test_a_file_without_a_task_says_why_it_imports_none(here: Path, content: str, words: str) -> None:
    (here / "tasks.jsonl").write_text(content)
    plain = run("tasks", "import", "tasks.jsonl", "--data", "data")
    assert plain.exit_code == 1
    assert words in plain.stderr
    assert words in document(run("tasks", "import", "tasks.jsonl", "--data", "data", "--json"))["remark"]


def test_many_problems_are_counted_and_the_first_named(here: Path) -> None:
    count = LINES_SHOWN + 1_234
    (here / "tasks.jsonl").write_text("no JSON\n" * count)
    plain = run("tasks", "import", "tasks.jsonl", "--data", "data")
    assert plain.exit_code == 1
    assert plain.stderr.count("left out") == LINES_SHOWN
    assert "1,234 more such lines; --json has them all" in plain.stderr
    assert len(document(run("tasks", "import", "tasks.jsonl", "--data", "data", "--json"))["problems"]) == count


def test_problems_of_predictions_are_counted_too(here: Path) -> None:
    make(here / "shop.db")
    (here / "tasks.jsonl").write_text('{"instance_id": "a", "db_id": "shop"}\n')
    (here / "predictions.jsonl").write_text("no JSON\n" * 1_000)
    paths = ["--tasks", "tasks.jsonl", "--databases", ".", "--out", "out", "--predictions", "predictions.jsonl"]
    result = run("score", *paths)
    assert result.stderr.count("problem: predictions.jsonl") == LINES_SHOWN
    assert "more such lines; out/report.txt has them all" in result.stderr
    assert (here / "out/report.txt").read_text().count("predictions.jsonl, line") == 1_000


def interrupt(*_: object, **__: object) -> NoReturn:
    raise KeyboardInterrupt


def _tasks(here: Path) -> None:
    make(here / "shop.db")
    record = {"instance_id": "a", "db_id": "shop", "sol_sql": ["SELECT 1"], "preprocess_sql": []}
    (here / "tasks.jsonl").write_text(json.dumps(record) + "\n")
    with Catalogue(here / "data"):
        pass


@pytest.mark.parametrize(
    ("arguments", "interrupted", "words"),
    [
        (["tasks", "validate", *("--tasks", "tasks.jsonl", "--databases", ".")], "validation.validate", "begins anew"),
        (["conformance", "tasks.jsonl"], "scoring.conformance.read_cases", "begins anew"),
        (["demo"], "demo.run", "server is stopped"),
        (["bench", "replicas"], "benches.replicas.run", "begins anew"),
        (["databases", "import", "shop.db"], "importing.import_databases", "imports the rest"),
        (["databases", "list"], "catalogue.Catalogue.databases", "Nothing was changed"),
        (["doctor"], "checkup.check_up", "removed"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_ctrl_c_is_one_line_that_says_how_to_go_on(
    here: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], interrupted: str, words: str
) -> None:
    _tasks(here)
    monkeypatch.setattr(f"bird_server.{interrupted}", interrupt)
    data = ["--data", "data"] if arguments[0] in ("tasks", "databases") else []
    plain = run(*arguments, *data)
    assert (plain.exit_code, plain.stdout) == (130, "")
    assert plain.stderr.startswith("Interrupted. ")
    assert words in plain.stderr
    assert plain.stderr.count("\n") == 1
    as_json = run(*arguments, *data, "--json")
    assert (as_json.exit_code, error(as_json)["code"]) == (130, "interrupted")


def test_an_interrupted_scoring_says_where_its_verdicts_are(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _tasks(here)
    given = ["score", "--tasks", "tasks.jsonl", "--databases", ".", "--mode", "gold", "--out", "out"]
    with monkeypatch.context() as first:
        first.setattr("bird_server.scoring.whole_file.score_file", interrupt)
        early = run(*given)
    assert early.exit_code == 130
    assert "Nothing was scored yet" in early.stderr
    assert run(*given).exit_code == 0
    with monkeypatch.context() as second:
        second.setattr("bird_server.scoring.whole_file.score_file", interrupt)
        late = run(*given)
    assert late.exit_code == 130
    assert "kept in out/verdicts.jsonl: run the same command again" in late.stderr
    assert document(run(*given, "--json"))["reused"] == 1


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (lambda: OSError(28, "No space left on device", "data/catalogue.db"), "os_error"),
        (
            lambda: OperationalError("INSERT", {}, sqlite3.OperationalError("database or disk is full")),
            "catalogue_error",
        ),
    ],
    ids=["os", "catalogue"],
)
def test_a_fault_of_the_disk_is_told_and_is_no_traceback(
    here: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[[], Exception], code: str
) -> None:
    _tasks(here)

    def fail(*_: object, **__: object) -> NoReturn:
        raise fault()

    monkeypatch.setattr(Catalogue, "add_tasks", fail)
    result = run("tasks", "import", "tasks.jsonl", "--data", "data", "--json")
    assert result.exit_code == 2
    assert error(result)["code"] == code
    assert "disk" in error(result)["hint"]
