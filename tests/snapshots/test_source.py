"""Publishing any SQLite file: what is kept, what is recovered, what is refused, and that the source stays as it was."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from bird_snapshots.errors import (
    CorruptDatabase,
    EncryptedDatabase,
    NotADatabase,
    SourceChanged,
    SourceError,
    SourceMissing,
    SourceUnreadable,
    TruncatedDatabase,
)
from bird_snapshots.files import sidecar
from bird_snapshots.format import parse_database_header
from bird_snapshots.store import Store
from bird_snapshots.template import Template, TemplateStore

Maker = Callable[..., Path]


@pytest.fixture
def templates(tmp_path: Path) -> TemplateStore:
    return TemplateStore(tmp_path / "store")


def snapshot(folder: Path) -> dict[str, tuple[int, int, str]]:
    return {
        path.name: (path.stat().st_mtime_ns, path.stat().st_ino, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in folder.iterdir()
        if path.is_file()
    }


def rows(template: Template, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(f"{template.path.as_uri()}?immutable=1", uri=True)) as connection:
        return connection.execute(sql).fetchall()


def nothing_left(templates: TemplateStore) -> None:
    assert list((templates.root / "tmp").iterdir()) == []
    assert list((templates.root / "templates").iterdir()) == []


class TestKept:
    @pytest.mark.parametrize("page_size", [512, 1024, 4096, 16384, 65536])
    def test_page_sizes(self, templates: TemplateStore, make_database: Maker, page_size: int) -> None:
        template = templates.publish(make_database(before=f"PRAGMA page_size = {page_size};"))
        assert template.page_size == page_size
        assert rows(template, "SELECT count(*) FROM t") == [(100,)]

    @pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le", "UTF-16be"])
    def test_encodings(self, tmp_path: Path, make_database: Maker, encoding: str) -> None:
        source = make_database(before=f"PRAGMA encoding = '{encoding}';")
        with Store(tmp_path / "store") as store:
            replica = store.acquire(store.templates.publish(source).digest)
            assert replica.execute("PRAGMA encoding").rows == [(encoding,)]
            replica.execute("UPDATE t SET a = 'ü' || char(0x1F600) WHERE id = 1")
            assert replica.execute("SELECT a FROM t WHERE id < 3").rows == [("ü\U0001f600",), ("row 2",)]

    @pytest.mark.parametrize("mode", ["NONE", "FULL", "INCREMENTAL"])
    def test_auto_vacuum_free_pages_and_numbers(self, tmp_path: Path, make_database: Maker, mode: str) -> None:
        source = make_database(before=f"PRAGMA auto_vacuum = {mode};")
        with closing(sqlite3.connect(source, isolation_level=None)) as connection:
            connection.executescript(
                "CREATE TABLE gone AS SELECT a.*, zeroblob(500) z FROM t a, parent; DROP TABLE gone;"
                "PRAGMA application_id = 77; PRAGMA user_version = 88;"
            )
            names = ("freelist_count", "auto_vacuum", "application_id", "user_version", "page_count", "schema_version")
            expected = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names]
        with Store(tmp_path / "store") as store:
            replica = store.acquire(store.templates.publish(source).digest)
            assert [replica.execute(f"PRAGMA {name}").rows[0][0] for name in names] == expected
            assert replica.execute("DELETE FROM t; PRAGMA integrity_check").rows == [("ok",)]

    def test_reserved_bytes(self, tmp_path: Path) -> None:
        source = tmp_path / "reserved.db"
        connection = apsw.Connection(str(source))
        connection.reserve_bytes("main", 16)
        connection.execute("VACUUM; CREATE TABLE t(a); INSERT INTO t VALUES (1)")
        connection.close()
        assert parse_database_header(source.read_bytes()).reserved == 16
        with Store(tmp_path / "store") as store:
            template = store.templates.publish(source)
            assert parse_database_header(template.path.read_bytes()).reserved == 16
            assert store.acquire(template.digest).execute("INSERT INTO t VALUES (2); SELECT sum(a) FROM t").rows == [
                (3,)
            ]

    def test_the_bytes_are_the_sources_but_for_the_wal_format(
        self, templates: TemplateStore, make_database: Maker
    ) -> None:
        source = make_database()
        with closing(sqlite3.connect(source)) as connection:
            connection.executescript(
                "DELETE FROM t WHERE id % 3; INSERT INTO t(a) VALUES ('last'); UPDATE t SET b = 1 WHERE id = 3"
            )
        expected = bytearray(source.read_bytes())
        expected[18:20] = b"\x02\x02"
        template = templates.publish(source)
        assert template.path.read_bytes() == expected
        assert template.digest == hashlib.sha256(expected).hexdigest()

    def test_row_order_without_an_order(self, templates: TemplateStore, tmp_path: Path) -> None:
        source = tmp_path / "order.db"
        with closing(sqlite3.connect(source)) as connection:
            connection.executescript(
                "CREATE TABLE t(a); INSERT INTO t(rowid, a) VALUES (9, 'z'), (2, 'y'), (5, 'x');"
                "CREATE TABLE w(k TEXT PRIMARY KEY) WITHOUT ROWID; INSERT INTO w VALUES ('b'), ('a')"
            )
            expected = connection.execute("SELECT rowid, a FROM t UNION ALL SELECT 0, k FROM w").fetchall()
        assert rows(templates.publish(source), "SELECT rowid, a FROM t UNION ALL SELECT 0, k FROM w") == expected


class TestAgain:
    def test_the_same_content_is_the_same_template(
        self, templates: TemplateStore, make_database: Maker, tmp_path: Path
    ) -> None:
        source = make_database()
        first = templates.publish(source)
        shutil.copy(source, tmp_path / "copy.db")
        assert templates.publish(tmp_path / "copy.db") == first
        assert templates.publish(source) == first
        assert [each.digest for each in templates.list()] == [first.digest]

    def test_one_of_ours_keeps_its_digest(self, templates: TemplateStore, make_database: Maker, tmp_path: Path) -> None:
        first = templates.publish(make_database(before="PRAGMA page_size = 1024;"))
        for name in ("export.sqlite", first.path.name):
            exported = tmp_path / name
            shutil.copy(first.path, exported)
            assert templates.publish(exported) == first
        assert templates.publish(first.path) == first
        link = tmp_path / "hard.db"
        os.link(first.path, link)
        assert templates.publish(link) == first
        other = TemplateStore(tmp_path / "other")
        assert other.publish(first.path).digest == first.digest

    def test_a_wal_format_source_is_the_template_of_its_rollback_twin(
        self, templates: TemplateStore, make_database: Maker, tmp_path: Path
    ) -> None:
        source = make_database()
        twin = tmp_path / "twin.db"
        twin.write_bytes(source.read_bytes()[:18] + b"\x02\x02" + source.read_bytes()[20:])
        assert templates.publish(twin) == templates.publish(source)

    def test_a_damaged_template_is_replaced(self, templates: TemplateStore, make_database: Maker) -> None:
        source = make_database()
        template = templates.publish(source)
        template.path.write_bytes(b"junk")
        assert templates.publish(source) == template
        templates.verify(template.digest)


def crash_in(path: Path, script: str) -> None:
    """Run a script on a database in a process of its own that dies without closing it."""
    program = (
        "import os, sqlite3, sys\n"
        "c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "for s in sys.argv[2].split('|'): c.execute(s).fetchall()\n"
        "os._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(path), script], check=False).returncode == 9


class TestRecovered:
    def test_a_wal_beside_the_file(self, templates: TemplateStore, make_database: Maker, tmp_path: Path) -> None:
        folder = tmp_path / "wal"
        folder.mkdir()
        source = Path(shutil.copy(make_database(), folder / "s.db"))
        crash_in(
            source,
            "PRAGMA journal_mode = WAL|PRAGMA wal_autocheckpoint = 0|UPDATE t SET a = 'in the wal'|BEGIN|DELETE FROM t",
        )
        assert sidecar(source, "-wal").stat().st_size > 0
        sidecar(source, "-shm").unlink()
        before = snapshot(folder)
        template = templates.publish(source)
        assert snapshot(folder) == before
        assert rows(template, "SELECT DISTINCT a FROM t") == [("in the wal",)]
        with closing(sqlite3.connect(source)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert templates.publish(source) == template, "checkpointed it is the same content"

    def test_a_hot_journal(self, templates: TemplateStore, make_database: Maker, tmp_path: Path) -> None:
        folder = tmp_path / "hot"
        folder.mkdir()
        source = Path(shutil.copy(make_database(), folder / "s.db"))
        expected = templates.publish(source)
        crash_in(source, "PRAGMA cache_size = 1|BEGIN|UPDATE t SET a = hex(randomblob(2000))")
        assert sidecar(source, "-journal").stat().st_size > 0
        before = snapshot(folder)
        template = templates.publish(source)
        assert snapshot(folder) == before
        assert rows(template, "SELECT a FROM t WHERE id = 1") == [("row 1",)]
        assert rows(template, "SELECT * FROM t") == rows(expected, "SELECT * FROM t")

    @pytest.mark.parametrize("suffix", ["-wal", "-journal", "-shm"])
    def test_empty_sidecars_are_nothing(self, templates: TemplateStore, make_database: Maker, suffix: str) -> None:
        source = make_database()
        expected = templates.publish(source)
        sidecar(source, suffix).write_bytes(b"")
        assert templates.publish(source) == expected
        assert sidecar(source, suffix).exists()

    def test_a_living_writer_in_wal_mode(self, templates: TemplateStore, make_database: Maker) -> None:
        source = make_database()
        with closing(sqlite3.connect(source, isolation_level=None)) as writer:
            writer.execute("PRAGMA journal_mode = WAL")
            writer.execute("UPDATE t SET a = 'committed'")
            writer.execute("BEGIN")
            writer.execute("UPDATE t SET a = 'open'")
            assert rows(templates.publish(source), "SELECT DISTINCT a FROM t") == [("committed",)]
            writer.execute("COMMIT")
            assert rows(templates.publish(source), "SELECT DISTINCT a FROM t") == [("open",)]

    def test_a_live_replica_can_be_published(self, tmp_path: Path, make_database: Maker) -> None:
        with Store(tmp_path / "store") as store:
            replica = store.acquire(store.templates.publish(make_database()).digest)
            replica.execute("DELETE FROM t WHERE id > 5")
            derived = store.templates.publish(replica._path)
            assert derived.digest != replica.digest
            assert store.acquire(derived.digest).execute("SELECT count(*) FROM t").rows == [(5,)]
            replica.execute("INSERT INTO t(a) VALUES ('goes on')")
            assert replica.execute("SELECT count(*) FROM t").rows == [(6,)]

    @pytest.mark.parametrize("before", ["", "PRAGMA journal_mode = WAL;"])
    def test_a_directory_that_cannot_be_written(
        self, templates: TemplateStore, make_database: Maker, tmp_path: Path, before: str
    ) -> None:
        folder = tmp_path / "readonly"
        folder.mkdir()
        source = Path(shutil.copy(make_database(before=before), folder / "s.db"))
        source.chmod(0o444)
        folder.chmod(0o555)
        try:
            kept = snapshot(folder)
            assert rows(templates.publish(source), "SELECT count(*) FROM t") == [(100,)]
            assert snapshot(folder) == kept
        finally:
            folder.chmod(0o755)

    def test_odd_names(self, templates: TemplateStore, make_database: Maker, tmp_path: Path) -> None:
        source = make_database()
        for name in ("a b?c#d%20.db", "ünï\n.db", "file:x.db", os.fsdecode(b"latin\xe9.db")):
            path = tmp_path / name
            shutil.copy(source, path)
            assert templates.publish(path) == templates.publish(source)


class TestRefused:
    def refused(self, templates: TemplateStore, path: Path, kind: type[SourceError]) -> SourceError:
        with pytest.raises(kind) as caught:
            templates.publish(path)
        assert type(caught.value) is kind
        assert caught.value.hint
        assert str(path) in str(caught.value)
        nothing_left(templates)
        return caught.value

    def test_missing(self, templates: TemplateStore, tmp_path: Path) -> None:
        self.refused(templates, tmp_path / "nope.db", SourceMissing)
        (tmp_path / "dangling").symlink_to(tmp_path / "nope.db")
        self.refused(templates, tmp_path / "dangling", SourceMissing)

    def test_a_directory_a_pipe_a_device(self, templates: TemplateStore, tmp_path: Path) -> None:
        (tmp_path / "folder").mkdir()
        os.mkfifo(tmp_path / "pipe")
        for path in (tmp_path / "folder", tmp_path / "pipe", Path("/dev/null"), tmp_path / "folder" / "x"):
            self.refused(templates, path, SourceMissing if path.name == "x" else SourceUnreadable)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
    def test_unreadable(self, templates: TemplateStore, make_database: Maker) -> None:
        source = make_database()
        source.chmod(0)
        self.refused(templates, source, SourceUnreadable)

    @pytest.mark.parametrize(
        ("data", "hint"),
        [
            (b"hello", "16 bytes"),
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "LFS"),
            (b"\x1f\x8b\x08" + bytes(500), "gzip"),
            (b"PK\x03\x04" + bytes(500), "zip"),
            (b"-- dump\nCREATE TABLE t(a);\n", "script"),
            (b"PRAGMA foreign_keys=OFF;\nBEGIN TRANSACTION;", "script"),
            (b'{"a": 1}', "JSON"),
            (b"<!DOCTYPE html><html>", "HTML"),
            (b"** This file contains an SQLite 2.1 database **", "SQLite 2"),
            (b"a,b\n1,2\n" * 128, "16 bytes"),
            (bytes(4096), "16 bytes"),
        ],
    )
    def test_other_formats_are_named(self, templates: TemplateStore, tmp_path: Path, data: bytes, hint: str) -> None:
        path = tmp_path / "other.db"
        path.write_bytes(data)
        assert hint in str(self.refused(templates, path, NotADatabase).hint)

    @pytest.mark.parametrize("size", [512, 1024, 4096, 8192])
    def test_encrypted(self, templates: TemplateStore, tmp_path: Path, size: int) -> None:
        path = tmp_path / "cipher.db"
        path.write_bytes(hashlib.shake_256(b"seed").digest(size))
        self.refused(templates, path, EncryptedDatabase)

    @pytest.mark.parametrize("left", [0.3, 0.75, 0.99])
    def test_truncated(self, templates: TemplateStore, make_database: Maker, left: float) -> None:
        source = make_database()
        data = source.read_bytes()
        source.write_bytes(data[: int(len(data) * left)])
        self.refused(templates, source, TruncatedDatabase)

    @pytest.mark.parametrize("size", [20, 99])
    def test_truncated_within_the_header(self, templates: TemplateStore, make_database: Maker, size: int) -> None:
        source = make_database()
        source.write_bytes(source.read_bytes()[:size])
        self.refused(templates, source, TruncatedDatabase)

    @pytest.mark.parametrize("page", [1, 2, 3])
    def test_corrupt(self, templates: TemplateStore, make_database: Maker, page: int) -> None:
        source = make_database(before="PRAGMA page_size = 4096;")
        data = bytearray(source.read_bytes())
        start = (page - 1) * 4096 + (100 if page == 1 else 0)
        data[start : start + 60] = b"\x5a" * 60
        source.write_bytes(data)
        error = self.refused(templates, source, CorruptDatabase)
        assert isinstance(error, CorruptDatabase)
        assert error.messages

    def test_a_page_size_that_cannot_be(self, templates: TemplateStore, make_database: Maker) -> None:
        source = make_database()
        data = bytearray(source.read_bytes())
        data[16:18] = b"\x03\x03"
        source.write_bytes(data)
        self.refused(templates, source, CorruptDatabase)

    def test_junk_with_a_wal_beside_it(self, templates: TemplateStore, tmp_path: Path) -> None:
        path = tmp_path / "junk.db"
        path.write_bytes(b"junk" * 2048)
        sidecar(path, "-wal").write_bytes(b"more junk")
        self.refused(templates, path, NotADatabase)

    def test_locked_by_a_writer(
        self, templates: TemplateStore, make_database: Maker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("bird_snapshots.connect.SOURCE_BUSY_MS", 10)
        source = make_database()
        program = (
            "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
            "c.execute('BEGIN EXCLUSIVE'); print('locked', flush=True); sys.stdin.read()"
        )
        # A process of its own: two SQLite libraries in one process do not see each other's locks.
        command = [sys.executable, "-c", program, str(source)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"locked\n"
            try:
                assert self.refused(templates, source, SourceChanged).retryable
            finally:
                writer.communicate()

    def test_changed_while_it_was_read(
        self, templates: TemplateStore, make_database: Maker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = make_database(before="PRAGMA journal_mode = WAL;")
        original = templates._files.read

        def read_late(path: Path, offset: int, length: int) -> bytes:
            with source.open("r+b") as file:
                file.seek(0, os.SEEK_END)
                file.write(bytes(4096))
            return original(path, offset, length)

        monkeypatch.setattr(templates._files, "read", read_late)
        self.refused(templates, source, SourceChanged)


class TestAccepted:
    def test_an_empty_file_is_an_empty_database(self, tmp_path: Path) -> None:
        source = tmp_path / "empty.db"
        source.touch()
        with Store(tmp_path / "store") as store:
            template = store.templates.publish(source)
            replica = store.acquire(template.digest)
            assert replica.execute("SELECT count(*) FROM sqlite_schema").rows == [(0,)]
            assert replica.execute("CREATE TABLE t(a); INSERT INTO t VALUES (1); SELECT * FROM t").rows == [(1,)]
            assert store.templates.publish(source) == template
        assert source.stat().st_size == 0

    def test_rows_that_break_constraints_are_the_databases_own(self, templates: TemplateStore, tmp_path: Path) -> None:
        source = tmp_path / "loose.db"
        with closing(sqlite3.connect(source)) as connection:
            connection.executescript(
                "CREATE TABLE t(a, c CHECK (c > 0)); PRAGMA ignore_check_constraints = 1;"
                "INSERT INTO t VALUES (NULL, -1); PRAGMA writable_schema = 1;"
                "UPDATE sqlite_master SET sql = 'CREATE TABLE t(a NOT NULL, c CHECK (c > 0))'"
            )
        assert rows(templates.publish(source), "SELECT * FROM t") == [(None, -1)]

    def test_bytes_behind_the_last_page_are_left_out(self, templates: TemplateStore, make_database: Maker) -> None:
        source = make_database()
        expected = templates.publish(source)
        with source.open("ab") as file:
            file.write(b"trailing")
        assert templates.publish(source) == expected

    def test_a_module_that_is_not_here(self, templates: TemplateStore, tmp_path: Path) -> None:
        source = tmp_path / "spatial.db"
        connection = apsw.Connection(str(source))
        connection.execute("CREATE TABLE t(a); INSERT INTO t VALUES (1); PRAGMA writable_schema = ON")
        connection.execute(
            "INSERT INTO sqlite_master VALUES ('table', 'g', 'g', 0, 'CREATE VIRTUAL TABLE g USING nosuchmodule(x)')"
        )
        connection.close()
        template = templates.publish(source)
        assert [each.kind for each in templates.schema(template.digest)] == ["table", "virtual"]

    @pytest.mark.parametrize("version", [(3, 6, 0), (3, 40, 1)])
    def test_a_header_whose_page_count_is_stale(
        self, templates: TemplateStore, make_database: Maker, version: tuple[int, int, int]
    ) -> None:
        source = make_database()
        data = bytearray(source.read_bytes())
        data[28:32] = (7_000).to_bytes(4, "big")
        data[92:96] = (version[1]).to_bytes(4, "big")  # not the change counter: the count means nothing
        source.write_bytes(data)
        first = templates.publish(source)
        assert rows(first, "SELECT count(*) FROM t") == [(100,)]
        assert templates.publish(first.path) == first
