"""The door to SQLite: what is set, what is read back, and that it is the only one. The guard is in `test_hazards`."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import apsw
import pytest

import bird_snapshots
from bird_snapshots import connect
from bird_snapshots.connect import LIMITS, has_temporary_database, open_private, open_replica, open_source
from bird_snapshots.errors import SettingsDidNotHold
from bird_snapshots.files import OS_FILES
from bird_snapshots.policy import Policy
from bird_snapshots.sql import pragma, query
from bird_snapshots.store import Store
from bird_snapshots.template import Template


@pytest.fixture
def opened(store: Store, template: Template) -> connect.Opened:
    path = store.root / "replicas" / "bare.db"
    OS_FILES.link(template.path, path)
    return open_replica(path, Policy(), check=lambda: False, committed=lambda _frames: None)


def test_only_one_module_opens_connections() -> None:
    folder = Path(bird_snapshots.__file__).parent
    openers = {
        path.name
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "apsw.Connection"
    }
    # `native` and `store` open private memory only: to find SQLite's functions, and to list their names.
    assert openers == {"connect.py", "native.py", "store.py"}
    for name in ("native.py", "store.py"):
        assert '.Connection(":memory:"' in (folder / name).read_text(encoding="utf-8")


def test_the_settings_as_they_are(opened: connect.Opened) -> None:
    connection = opened.connection
    for name, expected in (
        ("locking_mode", "exclusive"),
        ("journal_mode", "wal"),
        ("synchronous", 0),
        ("wal_autocheckpoint", 0),
        ("cache_size", -connect.CACHE_KIB),
    ):
        assert pragma(connection, name) == expected
    assert pragma(connection, "mmap_size") > 10**11
    assert {limit: connection.limit(limit) for limit in LIMITS} == LIMITS
    for option in (apsw.SQLITE_DBCONFIG_DEFENSIVE, apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE):
        assert connection.config(option, -1) == 1
    for option in (apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, apsw.SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER):
        assert connection.config(option, -1) == 0
    connection.close()


def test_limits_and_switches_that_do_not_hold_are_noticed(
    store: Store, template: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LIMITS, apsw.SQLITE_LIMIT_ATTACHED, 1_000_000)
    with pytest.raises(SettingsDidNotHold, match="SQLITE_LIMIT_ATTACHED"):
        store.acquire(template.digest)
    monkeypatch.undo()
    with pytest.raises(SettingsDidNotHold, match="FP_DIGITS"):
        open_replica(template.path, Policy(), check=lambda: False, committed=lambda _frames: None, float_digits=10_000)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_template_that_may_not_be_written_is_noticed(store: Store, template: Template) -> None:
    template.path.chmod(0o444)
    with pytest.raises(SettingsDidNotHold, match="read-only"):
        store.acquire(template.digest)


def test_temp_objects_are_not_looked_for_where_there_are_none(opened: connect.Opened) -> None:
    assert not has_temporary_database(opened.connection)
    query(opened.connection, "SELECT * FROM t ORDER BY random()")
    assert not has_temporary_database(opened.connection)
    query(opened.connection, "CREATE TEMP TABLE x(y)")
    assert has_temporary_database(opened.connection)
    opened.connection.close()


def test_a_source_cannot_be_written_and_leaves_nothing(template: Template) -> None:
    source = open_source(template.path, immutable=True)
    with pytest.raises(apsw.ReadOnlyError):
        query(source, "DELETE FROM t")
    source.close()
    assert [path.name for path in template.path.parent.iterdir()] == [template.path.name]


def test_a_private_file_is_made(tmp_path: Path) -> None:
    private = open_private(tmp_path / "new.db")
    query(private, "CREATE TABLE t(a)")
    private.close()
    assert (tmp_path / "new.db").stat().st_size > 0
