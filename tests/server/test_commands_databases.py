"""`bird-env databases …`: what it does, what it says to people and to programs, and its exit codes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bird_env.tasks import Task
from bird_server.catalogue import Catalogue
from bird_snapshots.template import TemplateStore
from command_line import document, run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def make(path: Path, rows: int = 3) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t(a)")
        connection.execute("CREATE VIEW v AS SELECT a FROM t")
        connection.executemany("INSERT INTO t VALUES (?)", [(number,) for number in range(rows)])
        connection.commit()
    return path


def test_a_benchmark_folder_is_imported_and_the_bad_one_named(tmp_path: Path, data: Path) -> None:
    make(tmp_path / "dbs/shop/shop_template.sqlite")
    make(tmp_path / "dbs/hr/hr.sqlite", rows=9)
    (tmp_path / "dbs/bad").mkdir()
    (tmp_path / "dbs/bad/bad.sqlite").write_text("this is no database at all, but long enough to be read as one")
    (tmp_path / "dbs/empty").mkdir()
    result = run("databases", "import", tmp_path / "dbs", "--data", data)
    assert result.exit_code == 1
    assert "2 databases imported" in result.stdout
    assert "bad: not imported" in result.stderr
    assert "empty: holds no database" in result.stderr

    again = run("databases", "import", tmp_path / "dbs", "--data", data, "--json")
    told = document(again)
    assert again.exit_code == 1
    assert [(one["database"], one["tables"], one["replaced_sha256"]) for one in told["imported"]] == [
        ("hr", 2, None),
        ("shop", 2, None),
    ]
    (failed,) = told["failed"]
    assert (failed["database"], failed["code"]) == ("bad", "not_a_database")
    assert failed["message"]
    assert failed["hint"]
    assert told["skipped"] == [str(tmp_path / "dbs/empty")]


def test_what_is_imported_is_a_template_of_the_store(tmp_path: Path, data: Path) -> None:
    told = document(run("databases", "import", make(tmp_path / "Shop.db"), "--data", data, "--json"))
    (imported,) = told["imported"]
    template = TemplateStore(data / "store").get(imported["sha256"])
    assert (template.size_bytes, template.page_size) == (imported["size_bytes"], imported["page_size_bytes"])
    assert imported["database"] == "Shop"
    assert imported["source"] == str(tmp_path / "Shop.db")
    with closing(sqlite3.connect(f"file:{template.path}?mode=ro&immutable=1", uri=True)) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (3,)


def test_a_name_for_one_database_and_only_for_one(tmp_path: Path, data: Path) -> None:
    odd = make(tmp_path / "my shop!.db")
    refused = run("databases", "import", odd, "--data", data, "--json")
    assert refused.exit_code == 1
    assert "--name" in document(refused)["failed"][0]["hint"]
    assert run("databases", "import", odd, "--name", "my_shop", "--data", data).exit_code == 0
    make(tmp_path / "other.db")
    both = run("databases", "import", odd, tmp_path / "other.db", "--name", "x", "--data", data)
    assert both.exit_code == 2
    assert "--name is for one database" in both.stderr
    assert [one["database"] for one in document(run("databases", "list", "--data", data, "--json"))["databases"]] == [
        "my_shop"
    ]


def test_a_name_given_twice_is_taken_once(tmp_path: Path, data: Path) -> None:
    one, two = make(tmp_path / "a/shop.db"), make(tmp_path / "b/shop.db", rows=5)
    result = run("databases", "import", one, two, "--data", data, "--json")
    assert result.exit_code == 1
    told = document(result)
    assert [each["source"] for each in told["imported"]] == [str(one)]
    assert [(each["code"], each["source"]) for each in told["failed"]] == [("name_taken", str(two))]


def test_importing_other_content_replaces_and_says_so(tmp_path: Path, data: Path) -> None:
    first = document(run("databases", "import", make(tmp_path / "a/shop.db"), "--data", data, "--json"))["imported"][0]
    second = run("databases", "import", make(tmp_path / "b/shop.db", rows=50), "--data", data)
    assert second.exit_code == 0
    assert f"stood for template {first['sha256'][:12]} before" in second.stderr
    (listed,) = document(run("databases", "list", "--data", data, "--json"))["databases"]
    assert listed["sha256"] != first["sha256"]
    assert first["sha256"] in {template.digest for template in TemplateStore(data / "store").list()}
    swept = document(run("databases", "remove", "--unused", "--data", data, "--json"))
    assert swept == {"removed": [], "templates_removed": [first["sha256"]], "templates_kept": []}


def test_a_path_that_holds_nothing_is_exit_code_2(tmp_path: Path, data: Path) -> None:
    result = run("databases", "import", tmp_path / "absent", "--data", data)
    assert result.exit_code == 2
    assert "does not exist" in result.stderr


def test_a_symbolic_link_is_followed(tmp_path: Path, data: Path) -> None:
    make(tmp_path / "blobs/9f")
    (tmp_path / "shop.sqlite").symlink_to(tmp_path / "blobs/9f")
    assert run("databases", "import", tmp_path / "shop.sqlite", "--data", data).exit_code == 0
    assert "shop" in run("databases", "list", "--data", data).stdout


def test_the_list_counts_tasks_and_names_what_is_missing(tmp_path: Path, data: Path) -> None:
    run("databases", "import", make(tmp_path / "shop.db"), "--data", data)
    with Catalogue(data) as catalogue:
        records = [("a", "shop"), ("b", "shop"), ("c", "gone")]
        tasks = [Task.from_record({"instance_id": name, "db_id": database}) for name, database in records]
        catalogue.add_tasks(tasks, source="x")
    (listed,) = document(run("databases", "list", "--data", data, "--json"))["databases"]
    assert listed["tasks"] == 2
    assert "gone: 1 tasks are on it" in run("databases", "list", "--data", data).stderr


def test_verify_finds_a_changed_template(tmp_path: Path, data: Path) -> None:
    run("databases", "import", make(tmp_path / "shop.db"), make(tmp_path / "hr.db", rows=99), "--data", data)
    assert run("databases", "verify", "--data", data).exit_code == 0
    with Catalogue(data) as catalogue:
        shop = catalogue.database("shop")
    assert shop is not None
    path = TemplateStore(data / "store").get(shop.digest).path
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 16)
    result = run("databases", "verify", "--data", data, "--json")
    assert result.exit_code == 1
    told = document(result)
    assert told["verified"] == ["hr"]
    assert [(one["database"], one["code"]) for one in told["damaged"]] == [("shop", "template_damaged")]
    assert run("databases", "verify", "hr", "--data", data).stdout.startswith("1 of 1 templates")
    assert run("databases", "verify", "absent", "--data", data).exit_code == 2


def test_remove_forgets_the_name_and_the_template(tmp_path: Path, data: Path) -> None:
    file = make(tmp_path / "shop.db")
    run("databases", "import", file, "--data", data)
    run("databases", "import", file, "--name", "copy", "--data", data)
    with Catalogue(data) as catalogue:
        catalogue.add_tasks([Task.from_record({"instance_id": "a", "db_id": "shop"})], source="x")
    refused = run("databases", "remove", "shop", "--data", data)
    assert refused.exit_code == 2
    assert "--with-tasks" in refused.stderr
    first = document(run("databases", "remove", "shop", "--with-tasks", "--data", data, "--json"))
    assert first == {"removed": ["shop"], "templates_removed": [], "templates_kept": []}
    second = document(run("databases", "remove", "copy", "--data", data, "--json"))
    assert len(second["templates_removed"]) == 1
    assert list(TemplateStore(data / "store").list()) == []
    assert run("databases", "remove", "shop", "--data", data).exit_code == 2
    assert run("databases", "remove", "--data", data).exit_code == 2


def test_the_environment_names_the_data_directory(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIRD_ENV_DATA", str(data))
    run("databases", "import", make(tmp_path / "shop.db"))
    assert (data / "catalogue.db").exists()
    assert "shop" in run("databases", "list").stdout
