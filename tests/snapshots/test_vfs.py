"""Accounts of temporary files: whose a file is, where it lies, how large it is."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

from bird_snapshots import vfs
from bird_snapshots.sql import pragma, query

NUMBERS = "WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM n WHERE v < 30) SELECT v FROM n"
SORT = "SELECT count(*) FROM (SELECT a.v, randomblob(300) r FROM t a, t b, t c ORDER BY r)"


@pytest.fixture
def connection(tmp_path: Path) -> apsw.Connection:
    opened = apsw.Connection(str(tmp_path / "x.db"), vfs=vfs.register(), statementcachesize=0)
    pragma(opened, "cache_size", -64)
    query(opened, f"CREATE TABLE t AS {NUMBERS}")
    return opened


def largest_seen(connection: apsw.Connection, account: vfs.TemporaryFiles, sql: str) -> int:
    sizes = [0]

    def look() -> bool:
        sizes.append(account.bytes())
        return False

    connection.set_progress_handler(look, 500)
    query(connection, sql)
    connection.set_progress_handler(None)
    return max(sizes)


def test_files_are_charged_to_the_account_of_the_thread(connection: apsw.Connection, tmp_path: Path) -> None:
    mine, others = vfs.TemporaryFiles(tmp_path), vfs.TemporaryFiles(tmp_path)
    with vfs.charged(mine):
        assert largest_seen(connection, mine, SORT) > 1_000_000
        with vfs.charged(others):
            query(connection, "CREATE TEMP TABLE kept AS SELECT randomblob(9000) FROM t a, t b")
    assert mine.bytes() == 0, "a sort's files end with it"
    assert others.bytes() > 5_000_000
    connection.close()
    assert others.bytes() == 0


def test_without_an_account_nothing_is_noted(connection: apsw.Connection, tmp_path: Path) -> None:
    account = vfs.TemporaryFiles(tmp_path)
    assert largest_seen(connection, account, SORT) == 0
    connection.close()


def test_another_threads_account_is_not_used(connection: apsw.Connection, tmp_path: Path) -> None:
    mine, theirs = vfs.TemporaryFiles(tmp_path), vfs.TemporaryFiles(tmp_path)
    ready, done = threading.Event(), threading.Event()

    def hold() -> None:
        with vfs.charged(theirs):
            ready.set()
            done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert ready.wait(30)
    with vfs.charged(mine):
        query(connection, "CREATE TEMP TABLE kept AS SELECT randomblob(9000) FROM t a, t b")
    done.set()
    thread.join()
    assert mine.bytes() > 5_000_000
    assert theirs.bytes() == 0
    connection.close()


def test_files_lie_in_the_accounts_folder_and_have_no_name_there(connection: apsw.Connection, tmp_path: Path) -> None:
    folder = tmp_path / "temporary é"
    folder.mkdir()
    with vfs.charged(vfs.TemporaryFiles(folder)):
        query(connection, "CREATE TEMP TABLE kept AS SELECT randomblob(9000) FROM t a, t b")
    links: list[str] = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the listing's own descriptor, closed by now
            links.append(str(each.readlink()))
    assert [link for link in links if str(folder) in link]
    assert list(folder.iterdir()) == []
    connection.close()


def test_a_folder_that_is_gone_is_an_error_with_its_reason(connection: apsw.Connection, tmp_path: Path) -> None:
    with vfs.charged(vfs.TemporaryFiles(tmp_path / "gone")), pytest.raises(apsw.CantOpenError):
        query(connection, "CREATE TEMP TABLE kept AS SELECT randomblob(9000) FROM t a, t b")
    assert connection.system_errno == 2
    connection.close()


def test_a_descriptor_used_again_belongs_to_its_new_owner(tmp_path: Path) -> None:
    first, second = vfs.TemporaryFiles(tmp_path), vfs.TemporaryFiles(tmp_path)
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        first.note(descriptor, first.new_name())
        assert first.bytes() == 100
        second.note(descriptor, second.new_name())
        assert (first.bytes(), second.bytes()) == (0, 100)
        first.close()
        assert second.bytes() == 100
        second.close()
        assert second.bytes() == 0
    finally:
        os.close(descriptor)
