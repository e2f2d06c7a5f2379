"""Databases of a scoring run, from the benchmark's layout and from a data directory of the service."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bird_env.errors import DataError
from bird_server.catalogue import Catalogue
from bird_server.datadir import DataDirectory
from bird_server.scoring.databases import collect
from bird_snapshots.template import TemplateStore
from server.scoring.support import sha256


def test_the_benchmarks_layout_is_published(tmp_path: Path, database: Path) -> None:
    for name, file in (("shop", "shop_template.sqlite"), ("lib", "lib.sqlite")):
        (tmp_path / "databases" / name).mkdir(parents=True)
        shutil.copy(database, tmp_path / "databases" / name / file)
    bad = tmp_path / "databases" / "bad"
    bad.mkdir()
    (bad / "bad_template.sqlite").write_bytes(b"no database at all, though it is long enough to be one" * 30)
    counted: list[None] = []
    found = collect(
        tmp_path / "databases",
        ["shop", "lib", "bad", "gone", "../x"],
        tmp_path / "store",
        on_database=lambda: counted.append(None),
    )
    assert sorted(found.found) == ["lib", "shop"]
    assert sorted(found.absent) == ["../x", "bad", "gone"]
    assert "there is no database 'gone'" in found.absent["gone"]
    assert "cannot be used" in found.absent["bad"]
    assert len(counted) == 5
    shop = found.found["shop"]
    assert shop.sha256 == found.found["lib"].sha256 == sha256(shop.path)


def test_one_file_is_one_database(tmp_path: Path, database: Path) -> None:
    found = collect(database, [database.stem, "other"], tmp_path / "store")
    assert list(found.found) == [database.stem]
    assert list(found.absent) == ["other"]


def test_a_data_directory_gives_its_own_templates(tmp_path: Path, database: Path) -> None:
    directory = DataDirectory(tmp_path / "data")
    directory.root.mkdir()
    template = TemplateStore(directory.store).publish(database)
    with Catalogue(directory.root) as catalogue:
        catalogue.add_database("shop", digest=template.digest, size_bytes=1, page_size=4096, tables=1, source="x")
    found = collect(directory.root, ["shop", "lost"], tmp_path / "store")
    assert found.found["shop"].path == template.path
    assert "data directory" in found.absent["lost"]
    assert not (tmp_path / "store").exists()


def test_a_source_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        collect(tmp_path / "nothing", [], tmp_path / "store")
