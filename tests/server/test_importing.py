"""Database files into a data directory: refused ones are told of; templates go only when nothing needs them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bird_env.errors import DataError
from bird_server.catalogue import Catalogue
from bird_server.database_files import DatabaseFile
from bird_server.importing import Dropped, import_database, import_databases, remove_unused
from bird_snapshots.store import Store


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    with Catalogue(tmp_path / "data") as opened:
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "data/store") as opened:
        yield opened


def make(path: Path, rows: int = 1) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE t(a); CREATE VIEW v AS SELECT 1; CREATE INDEX i ON t(a)")
        connection.executemany("INSERT INTO t VALUES (?)", [(number,) for number in range(rows)])
        connection.commit()
    return path


def test_a_refused_file_stops_nothing(tmp_path: Path, catalogue: Catalogue, store: Store) -> None:
    (tmp_path / "bad").write_bytes(b"no database" * 50)
    files = [
        DatabaseFile("bad", tmp_path / "bad"),
        DatabaseFile("absent", tmp_path / "absent"),
        DatabaseFile("no name!", make(tmp_path / "one")),
        DatabaseFile("good", tmp_path / "one"),
        DatabaseFile("good", make(tmp_path / "two", 2)),
    ]
    found = list(import_databases(files, catalogue, store.templates))
    codes = [one.refused.code if one.refused is not None else None for one in found]
    assert codes == ["not_a_database", "source_missing", "data_error", None, "name_taken"]
    assert all(one.refused.hint for one in found if one.refused is not None)
    good = found[3].database
    assert good is not None
    assert good == catalogue.database("good")
    assert good.tables == 2
    assert [template.digest for template in store.templates.list()] == [good.digest]


def test_a_template_goes_when_neither_a_name_nor_a_replica_needs_it(
    tmp_path: Path, catalogue: Catalogue, store: Store
) -> None:
    def bring(rows: int) -> str:
        file = DatabaseFile("shop", make(tmp_path / f"{rows}.db", rows))
        (outcome,) = import_databases([file], catalogue, store.templates)
        assert outcome.database is not None
        return outcome.database.digest

    first = bring(1)
    assert list(remove_unused(catalogue, store.templates)) == []
    replica = store.acquire(first)
    second = bring(2)
    (kept,) = remove_unused(catalogue, store.templates)
    assert (kept.digest, kept.refused.code if kept.refused else None) == (first, "template_in_use")
    assert replica.execute("SELECT count(*) FROM t").rows == [(1,)]
    replica.release()
    assert list(remove_unused(catalogue, store.templates, among=[second])) == []
    assert list(remove_unused(catalogue, store.templates)) == [Dropped(first)]
    assert [template.digest for template in store.templates.list()] == [second]


def test_one_file_that_must_be_a_database(tmp_path: Path, catalogue: Catalogue, store: Store) -> None:
    found = import_database(DatabaseFile("shop", make(tmp_path / "one")), catalogue, store.templates)
    assert found == catalogue.database("shop")
    (tmp_path / "bad").write_bytes(b"no database" * 50)
    for name, path, code in (("bad", "bad", "not_a_database"), ("absent", "absent", "source_missing")):
        with pytest.raises(DataError) as caught:
            import_database(DatabaseFile(name, tmp_path / path), catalogue, store.templates)
        assert caught.value.fields["engine_code"] == code
        assert caught.value.hint
    with pytest.raises(DataError):
        import_database(DatabaseFile("no name!", tmp_path / "one"), catalogue, store.templates)
    assert [each.name for each in catalogue.databases()] == ["shop"]
