"""Which files a path stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from bird_env.errors import DataError
from bird_server.database_files import find_databases, locate_database


def touch(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


def found(path: Path) -> dict[str, str]:
    return {one.name: str(one.path.relative_to(path)) for one in find_databases(path).files}


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("shop.sqlite", "shop"),
        ("Shop_template.sqlite", "Shop"),
        ("shop.db", "shop"),
        ("shop.backup", "shop"),
        ("shop", "shop"),
        ("a.b.sqlite3", "a.b"),
        ("_template.sqlite", "_template"),
    ],
)
def test_a_file_is_named_by_its_stem(tmp_path: Path, file: str, name: str) -> None:
    (one,) = find_databases(touch(tmp_path, file) / file).files
    assert (one.name, one.path) == (name, tmp_path / file)


def test_the_benchmarks_layout(tmp_path: Path) -> None:
    touch(
        tmp_path,
        "chinook/chinook_template.sqlite",
        "chinook/chinook.sqlite",
        "chinook/chinook_ephemeral_1.sqlite",
        "schools/schools.sqlite",
        "schools/database_description/schools.csv",
        "odd/other_template.sqlite",
        "odd/odd.sqlite",
        "__MACOSX/x.sqlite",
        ".cache/y.sqlite",
        "README.md",
    )
    assert found(tmp_path) == {
        "chinook": "chinook/chinook_template.sqlite",
        "odd": "odd/other_template.sqlite",
        "schools": "schools/schools.sqlite",
    }


def test_the_folder_of_one_database(tmp_path: Path) -> None:
    touch(tmp_path, "chinook/chinook_template.sqlite", "chinook/notes.db", "california/california.sqlite")
    assert found(tmp_path / "chinook") == {"chinook": "chinook_template.sqlite"}
    assert found(tmp_path / "california") == {"california": "california.sqlite"}


def test_a_folder_of_files(tmp_path: Path) -> None:
    touch(tmp_path, "b.sqlite", "a.db", "b_template.sqlite", "b_ephemeral_12.sqlite", "c.txt", "b.sqlite-wal")
    assert found(tmp_path) == {"a": "a.db", "b": "b_template.sqlite"}


def test_folders_without_a_database_are_told_of(tmp_path: Path) -> None:
    touch(tmp_path, "a/a.sqlite", "missing/readme.txt")
    assert find_databases(tmp_path).skipped == (tmp_path / "missing",)


def test_links_are_followed_for_content_and_not_for_names(tmp_path: Path) -> None:
    touch(tmp_path, "blobs/4f2a", "real/chinook/chinook_template.sqlite")
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot/shop.sqlite").symlink_to(tmp_path / "blobs/4f2a")
    (tmp_path / "snapshot/chinook").symlink_to(tmp_path / "real/chinook")
    assert found(tmp_path / "snapshot") == {"chinook": "chinook/chinook_template.sqlite", "shop": "shop.sqlite"}
    assert find_databases(tmp_path / "snapshot/shop.sqlite").files[0].name == "shop"


def test_a_relative_path_is_named_by_where_it_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "chinook/chinook.sqlite")
    monkeypatch.chdir(tmp_path / "chinook")
    assert [one.name for one in find_databases(Path()).files] == ["chinook"]


def test_what_holds_no_database_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no database") as caught:
        find_databases(touch(tmp_path, "readme.txt"))
    assert "_template.sqlite" in (caught.value.hint or "")
    with pytest.raises(DataError, match="does not exist"):
        find_databases(tmp_path / "absent")
    with pytest.raises(DataError, match="neither file nor folder"):
        find_databases(Path("/dev/null"))


def test_one_database_is_located_by_name(tmp_path: Path) -> None:
    touch(tmp_path, "a/a_template.sqlite", "b/b.sqlite", "c.sqlite", "d_template.sqlite", "e/other_template.sqlite")
    assert {name: locate_database(tmp_path, name) for name in "abcdef"} == {
        "a": tmp_path / "a/a_template.sqlite",
        "b": tmp_path / "b/b.sqlite",
        "c": tmp_path / "c.sqlite",
        "d": tmp_path / "d_template.sqlite",
        "e": tmp_path / "e/other_template.sqlite",
        "f": None,
    }
    assert locate_database(tmp_path / "a", "a") == tmp_path / "a/a_template.sqlite"
    assert locate_database(tmp_path / "d_template.sqlite", "d") == tmp_path / "d_template.sqlite"
    assert locate_database(tmp_path / "d_template.sqlite", "a") is None
    with pytest.raises(DataError, match="does not exist"):
        locate_database(tmp_path / "absent", "a")


@pytest.mark.parametrize("name", ["..", ".", "", "../secret", "/etc/passwd", "a/b", "a\0"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    touch(tmp_path, "secret.sqlite", "in/x.sqlite", "in/a/b.sqlite")
    assert locate_database(tmp_path / "in", name) is None
