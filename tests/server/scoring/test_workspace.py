"""The private directory: its layout, its resets, and what is no verdict."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bird_server.scoring.workspace import PrivateWorkspace, WorkspaceError, open_source


def count(path: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        found: int = connection.execute("SELECT count(*) FROM t").fetchone()[0]
    return found


def test_the_file_is_a_true_copy_in_the_evaluators_layout(tmp_path: Path, database: Path) -> None:
    workspace = PrivateWorkspace(tmp_path / "root", "shop", open_source(database), copies=1)
    assert workspace.db_path == "./sqlite_databases_test/shop/shop.sqlite"
    assert Path(workspace.file) == tmp_path / "root/sqlite_databases_test/shop/shop.sqlite"
    assert Path(workspace.file).read_bytes() == database.read_bytes()
    assert not Path(workspace.file).samefile(database)


@pytest.mark.parametrize("name", [None, 5, "", "..", ".", "a/b", "x?y", "a\0b", "x" * 300])
def test_a_name_that_is_no_file_name_becomes_another(tmp_path: Path, database: Path, name: Any) -> None:
    assert PrivateWorkspace(tmp_path / "root", name, open_source(database), copies=1).db_path.endswith(
        "/database.sqlite"
    )


def test_a_reset_brings_the_content_back_and_open_connections_stay_on_the_old_file(
    tmp_path: Path, database: Path
) -> None:
    workspace = PrivateWorkspace(tmp_path / "root", "shop", open_source(database), copies=3)
    with closing(sqlite3.connect(workspace.file)) as old:
        for _ in range(2):
            Path(f"{workspace.file}-journal").touch()
            inode = Path(workspace.file).stat().st_ino
            workspace.reset()
            assert Path(workspace.file).stat().st_ino != inode
            assert not Path(f"{workspace.file}-journal").exists()
            with closing(sqlite3.connect(workspace.file)) as new:
                new.execute("DELETE FROM t")
                new.commit()
            assert old.execute("SELECT count(*) FROM t").fetchone() == (3,)
    assert count(workspace.file) == 0
    with pytest.raises(WorkspaceError, match="no copy is left"):
        workspace.reset()


def test_resets_work_after_the_source_is_gone(tmp_path: Path, database: Path) -> None:
    workspace = PrivateWorkspace(tmp_path / "root", "shop", open_source(database), copies=2)
    database.unlink()
    workspace.reset()
    assert count(workspace.file) == 3


@pytest.mark.parametrize("content", [b"no database at all", b"SQLite format 2\0"])
def test_what_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    source = tmp_path / "source"
    source.write_bytes(content)
    with pytest.raises(WorkspaceError, match="not a SQLite file"):
        PrivateWorkspace(tmp_path / "root", "shop", open_source(source), copies=1)


def test_an_empty_file_is_an_empty_database(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.touch()
    assert PrivateWorkspace(tmp_path / "root", "shop", open_source(source), copies=1).file


def test_a_source_that_is_not_there_is_named_as_such(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="No such file"):
        PrivateWorkspace(tmp_path / "root", "shop", open_source(tmp_path / "nothing"), copies=1)


def _full() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorname = "SQLITE_FULL"
    return error


@pytest.mark.parametrize(
    ("free_blocks", "shared", "starved"), [(0, True, True), (1_000_000, True, False), (0, False, False)]
)
def test_a_full_disk_that_others_share_is_not_the_statements_fault(
    tmp_path: Path, database: Path, monkeypatch: pytest.MonkeyPatch, free_blocks: int, shared: bool, starved: bool
) -> None:
    workspace = PrivateWorkspace(tmp_path / "root", "shop", open_source(database), copies=1, shared_disk=shared)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=free_blocks, f_frsize=4096))
    workspace.observe(sqlite3.OperationalError("no such table: x"))
    workspace.observe(ValueError())
    assert not workspace.starved
    workspace.observe(_full())
    assert workspace.starved is starved
