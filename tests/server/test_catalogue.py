"""The catalogue: names and tasks kept, replaced and listed, by several processes at once."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bird_env.errors import DataError, UnknownDatabase
from bird_env.tasks import Task
from bird_server.catalogue import FILE_NAME, Catalogue, Counts, check_database_name

WHEN = datetime(2024, 2, 29, 12, 0, tzinfo=UTC)
A, B = "a" * 64, "b" * 64


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    with Catalogue(tmp_path / "data", now=lambda: WHEN) as opened:
        yield opened


def task(instance_id: str, database: str = "shop", **fields: Any) -> Task:
    return Task.from_record({"instance_id": instance_id, "db_id": database, "sol_sql": ["SELECT 1"], **fields})


def add(catalogue: Catalogue, name: str = "shop", digest: str = A) -> Any:
    return catalogue.add_database(name, digest=digest, size_bytes=8192, page_size=4096, tables=2, source="/x/shop.db")


def test_a_new_directory_holds_an_empty_catalogue(catalogue: Catalogue) -> None:
    assert catalogue.counts() == Counts(databases=0, tasks=0, scorable=0)
    assert (catalogue.databases(), catalogue.tasks(), catalogue.databases_of_tasks()) == ([], [], {})
    assert (catalogue.database("shop"), catalogue.task("a")) == (None, None)


def test_a_database_is_kept_and_told_without_its_path(catalogue: Catalogue) -> None:
    assert add(catalogue) is None
    (found,) = catalogue.databases()
    assert found == catalogue.database("shop")
    assert (found.name, found.digest, found.size_bytes, found.page_size, found.tables) == ("shop", A, 8192, 4096, 2)
    assert (found.source, found.imported_at) == ("/x/shop.db", WHEN)
    assert "/x" not in repr(found.info())
    assert found.info().sha256 == A


def test_a_name_that_stands_for_another_template_says_what_it_stood_for(catalogue: Catalogue) -> None:
    add(catalogue)
    assert add(catalogue) is None
    before = add(catalogue, digest=B)
    assert before is not None
    assert before.digest == A
    assert [one.digest for one in catalogue.databases()] == [B]


def test_case_is_kept_and_tells_names_apart(catalogue: Catalogue) -> None:
    add(catalogue, "Shop")
    add(catalogue, "shop")
    assert [one.name for one in catalogue.databases()] == ["Shop", "shop"]
    assert catalogue.database("SHOP") is None


@pytest.mark.parametrize("name", ["shop", "California_Schools", "a", "_x", "1.5~b-c", "x" * 200])
def test_names_that_can_stand_in_an_address(name: str) -> None:
    assert check_database_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", ".hidden", "-x", "a b", "a/b", "a\\b", "a\n", "a\0", "é", "a?b", "a%20", "\udcff", "x" * 201],
)
def test_names_that_cannot(catalogue: Catalogue, name: str) -> None:
    with pytest.raises(DataError, match="cannot be the name") as caught:
        add(catalogue, name)
    assert "--name" in (caught.value.hint or "")
    assert catalogue.databases() == []


def test_a_database_with_tasks_is_removed_only_with_them(catalogue: Catalogue) -> None:
    add(catalogue)
    catalogue.add_tasks([task("a"), task("b", "other")], source="x")
    with pytest.raises(DataError, match="there are tasks"):
        catalogue.remove_database("shop")
    assert catalogue.counts() == Counts(1, 2, 2)
    assert catalogue.remove_database("shop", with_tasks=True).digest == A
    assert catalogue.counts() == Counts(0, 1, 1)
    assert catalogue.task("a") is None
    for absent in ("shop", "\udcff"):
        with pytest.raises(UnknownDatabase):
            catalogue.remove_database(absent)


def test_tasks_are_added_replaced_or_found_unchanged(catalogue: Catalogue) -> None:
    first = catalogue.add_tasks([task("a"), task("b")], source="one")
    assert (first.added, first.replaced, first.unchanged) == (("a", "b"), (), ())
    second = catalogue.add_tasks([task("a"), task("b", query="?"), task("c")], source="two")
    assert (second.added, second.replaced, second.unchanged) == (("c",), ("b",), ("a",))
    found = catalogue.task("b")
    assert found is not None
    assert found.issue == "?"
    assert catalogue.counts() == Counts(0, 3, 3)


def test_tasks_are_listed_by_id_filter_and_page(catalogue: Catalogue) -> None:
    catalogue.add_tasks(
        [
            task("b", category="Query"),
            task("a", "other", category="Query"),
            task("c", category="Management", sol_sql=[]),
            task("d", category="\ud800"),
        ],
        source="x",
    )

    def ids(**wanted: Any) -> list[str]:
        return [one.instance_id for one in catalogue.tasks(**wanted)]

    assert ids() == ["a", "b", "c", "d"]
    assert ids(database="shop") == ["b", "c", "d"]
    assert ids(category="Query") == ["a", "b"]
    assert ids(category="\ud800") == ["d"]
    assert ids(database="shop", category="Query") == ["b"]
    assert ids(scorable=False) == ["c"]
    assert ids(limit=2) == ["a", "b"]
    assert ids(after="b", limit=2) == ["c", "d"]
    assert ids(after="zzz") == []
    assert ids(database="\udcff") == []
    assert catalogue.databases_of_tasks() == {"other": 1, "shop": 3}
    assert catalogue.task("\ud800") is None


def test_paging_meets_every_task_whatever_is_added_meanwhile(catalogue: Catalogue) -> None:
    catalogue.add_tasks([task(f"t{number:03}") for number in range(0, 100, 2)], source="x")
    seen: list[str] = []
    while page := catalogue.tasks(after=seen[-1] if seen else None, limit=7):
        seen.extend(one.instance_id for one in page)
        catalogue.add_tasks([task(f"t{len(seen):03}x")], source="x")
    assert set(seen) >= {f"t{number:03}" for number in range(0, 100, 2)}
    assert seen == sorted(set(seen))


def test_more_tasks_than_one_statement_takes(catalogue: Catalogue) -> None:
    many = [task(f"t{number}") for number in range(1_200)]
    catalogue.add_tasks(many, source="x")
    assert len(catalogue.add_tasks(many, source="x").unchanged) == 1_200


def test_the_revision_grows_with_every_change_made_beside(tmp_path: Path, catalogue: Catalogue) -> None:
    with Catalogue(tmp_path / "data") as other:
        start = catalogue.revision()
        other.add_tasks([task("a")], source="x")
        assert catalogue.revision() == start + 1
        assert catalogue.task("a") is not None
        add(other)
        assert catalogue.revision() == start + 2
        other.remove_database("shop", with_tasks=True)
        assert catalogue.revision() == start + 3


def test_a_change_that_fails_changes_nothing(catalogue: Catalogue) -> None:
    start = catalogue.revision()

    def broken() -> Iterator[Task]:
        yield task("a")
        raise RuntimeError("the file ended")

    with pytest.raises(RuntimeError):
        catalogue.add_tasks(broken(), source="x")
    with pytest.raises(UnknownDatabase):
        catalogue.remove_database("absent")
    assert (catalogue.revision(), catalogue.tasks()) == (start, [])


def test_writers_in_threads_and_other_connections_wait_for_each_other(tmp_path: Path) -> None:
    root = tmp_path / "data"
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with Catalogue(root) as mine:
                for each in range(5):
                    mine.add_tasks([task(f"{number}-{each}")], source="x")
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with Catalogue(root) as opened:
        assert opened.counts().tasks == 30
        assert opened.revision() == 30
    assert sorted(path.name for path in root.iterdir()) == [FILE_NAME]


def test_a_reader_does_not_wait_for_a_writer(tmp_path: Path, catalogue: Catalogue) -> None:
    catalogue.add_tasks([task("a")], source="x")
    writer = sqlite3.connect(tmp_path / "data" / FILE_NAME, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("UPDATE about SET revision = 99")
    assert catalogue.revision() == 1
    assert catalogue.task("a") is not None
    writer.execute("ROLLBACK")
    writer.close()


def test_what_is_no_catalogue_is_an_error_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database" * 100)
    with pytest.raises(DataError, match="cannot be opened"):
        Catalogue(tmp_path)
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(DataError, match="cannot be used: File exists"):
        Catalogue(file)


def test_a_catalogue_to_read_is_not_made(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for root, words in ((tmp_path / "none", "does not exist"), (tmp_path, "holds no catalogue"), (file, "is a file")):
        with pytest.raises(DataError, match=words) as caught:
            Catalogue(root, make=False)
        assert "--data" in (caught.value.hint or "")
    assert list(tmp_path.iterdir()) == [file]
    with Catalogue(tmp_path / "data"), Catalogue(tmp_path / "data", make=False) as again:
        assert again.databases() == []


def test_a_catalogue_of_another_version_is_refused(tmp_path: Path) -> None:
    with Catalogue(tmp_path):
        pass
    other = sqlite3.connect(tmp_path / FILE_NAME)
    other.execute("UPDATE about SET schema_version = 99")
    other.commit()
    other.close()
    with pytest.raises(DataError, match="version 99"):
        Catalogue(tmp_path)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    query=st.text(st.characters(codec=None), max_size=30), sql=st.lists(st.text(st.characters(codec=None)), max_size=3)
)
def test_any_text_comes_back(catalogue: Catalogue, query: str, sql: list[str]) -> None:
    given_task = task("any", query=query, issue_sql=sql)
    catalogue.add_tasks([given_task], source="x")
    assert catalogue.task("any") == given_task
