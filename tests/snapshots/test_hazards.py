"""The hazards that were proved by experiment against this design, each tried on the engine as it is.

Numbers in names are those of the experiments: `c` for the first round on copy-on-write, `d` for the attack on the
design. The template's hash is taken before and after each.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import apsw
import pytest

from bird_snapshots import connect, vfs
from bird_snapshots.errors import (
    CrossDevice,
    EngineFault,
    GuardFailed,
    LinkRefused,
    SettingsDidNotHold,
    StoreBusy,
    TemplateDamaged,
    UnknownPosition,
)
from bird_snapshots.failures import Outcome
from bird_snapshots.files import OS_FILES, sidecar
from bird_snapshots.limits import Limits
from bird_snapshots.policy import Policy
from bird_snapshots.position import Position
from bird_snapshots.replica import Replica
from bird_snapshots.sql import pragma, query
from bird_snapshots.store import Store
from bird_snapshots.template import Template, TemplateStore
from bird_snapshots.testing import assert_template_untouched


@pytest.fixture
def replica(store: Store, template: Template) -> Iterator[Replica]:
    with assert_template_untouched(store.templates, template.digest):
        made = store.acquire(template.digest)
        yield made
        made.release()


@pytest.fixture
def bare(store: Store, template: Template) -> Iterator[apsw.Connection]:
    """A replica's connection without its authorizer: what only the settings and the guard hold back."""
    path = store.root / "replicas" / "bare.db"
    OS_FILES.link(template.path, path)
    opened = connect.open_replica(path, Policy(), check=lambda: False, committed=lambda frames: None)
    opened.connection.authorizer = None
    with assert_template_untouched(store.templates, template.digest):
        yield opened.connection
        opened.connection.close(True)


@pytest.mark.parametrize(
    "statements",
    [
        ["PRAGMA wal_checkpoint(PASSIVE)"],
        ["PRAGMA wal_checkpoint(FULL)"],
        ["PRAGMA wal_checkpoint(RESTART)"],
        ["PRAGMA wal_checkpoint(TRUNCATE)"],
        ["PRAGMA wal_autocheckpoint = 1", "UPDATE t SET b = b + 1"],
        ["PRAGMA journal_mode = DELETE"],
        ["PRAGMA journal_mode = MEMORY"],
        ["PRAGMA journal_mode = OFF", "UPDATE t SET b = 0"],
        ["VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"],
    ],
)
def test_c1_the_guard_alone_keeps_the_template(bare: apsw.Connection, statements: list[str]) -> None:
    query(bare, "UPDATE t SET a = 'changed'")
    for statement in statements:
        with suppress(apsw.IOError, apsw.ReadOnlyError, apsw.CantOpenError, apsw.BusyError):
            query(bare, statement)


def test_c2_closing_writes_nothing(store: Store, template: Template) -> None:
    with assert_template_untouched(store.templates, template.digest):
        for _ in range(3):
            made = store.acquire(template.digest)
            made.execute("UPDATE t SET a = 'changed'; CREATE TABLE more AS SELECT * FROM t")
            made.release()


def test_c3_every_setting_is_read_back(store: Store, template: Template, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(connection: apsw.Connection, name: str, value: object = None) -> object:
        return pragma(connection, name) if name == refused else pragma(connection, name, value)  # type: ignore[arg-type]

    monkeypatch.setattr(connect, "pragma", forgetful)
    for refused in ("synchronous", "wal_autocheckpoint", "cache_size"):
        with pytest.raises(SettingsDidNotHold, match=refused):
            store.acquire(template.digest)
    assert list((store.root / "replicas").iterdir()) == []


def test_c3_a_large_update_never_checkpoints(replica: Replica) -> None:
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)"
    replica.execute(f"CREATE TABLE many AS {numbers} SELECT i, hex(randomblob(40)) h FROM n")
    result = replica.execute("UPDATE many SET h = h || 'x'")
    assert result.position.frames > 2_000


def test_c4_c5_modes_stay_as_they_are(replica: Replica) -> None:
    replica.execute(
        "PRAGMA journal_mode = DELETE; PRAGMA locking_mode = NORMAL; PRAGMA journal_mode = DELETE; UPDATE t SET a = 'w'"
    )
    assert replica.execute("PRAGMA journal_mode").rows == [("wal",)]
    assert replica.execute("PRAGMA locking_mode").rows == [("exclusive",)]
    assert not list(replica._path.parent.glob("*-journal"))


def test_c6_names_are_never_used_again(store: Store, template: Template) -> None:
    names: set[str] = set()
    for _ in range(50):
        made = store.acquire(template.digest)
        names.add(made.generation)
        made.execute("DELETE FROM t")
        made.release()
        assert list((store.root / "replicas").iterdir()) == []
    assert len(names) == 50


def test_c6_a_new_owner_sweeps_stale_files(store: Store, template: Template) -> None:
    left = store.root / "replicas" / "left.db"
    store.close()
    OS_FILES.link(template.path, left)
    for suffix in ("-wal", "-journal", "-shm"):
        sidecar(left, suffix).write_bytes(b"stale")
    with Store(store.root) as again:
        assert list((store.root / "replicas").iterdir()) == []
        assert again.acquire(template.digest).execute("SELECT count(*) FROM t").rows == [(100,)]
    with Store(store.root) as again:
        again.templates.verify(template.digest)
        again.templates.remove(template.digest)


def test_c7_a_store_has_one_owner(store: Store) -> None:
    with pytest.raises(StoreBusy) as caught:
        Store(store.root)
    assert caught.value.pid == os.getpid()
    assert str(os.getpid()) in str(caught.value)


def test_c9_vacuum_needs_one_attached_database(replica: Replica) -> None:
    assert replica.execute("VACUUM").outcome is Outcome.OK


def test_c11_the_process_keeps_its_heap(replica: Replica, store: Store, template: Template) -> None:
    replica.execute("PRAGMA hard_heap_limit = 100000; PRAGMA soft_heap_limit = 100000; PRAGMA heap_limit = 1")
    assert store.acquire(template.digest).execute("SELECT count(*) FROM t a, t b").rows == [(10_000,)]


def test_c12_a_symbolic_link_is_not_made(store: Store, template: Template, tmp_path: Path) -> None:
    made = store.acquire(template.digest)
    path = store.root / "replicas" / f"{made.generation}.db"
    assert not path.is_symlink()
    assert path.stat().st_ino == template.path.stat().st_ino
    made.execute("UPDATE t SET b = 1")
    assert sorted(each.name for each in template.path.parent.iterdir()) == [template.path.name]
    made.release()
    link = tmp_path / "link.sqlite"
    link.symlink_to(template.path)
    assert store.templates.publish(link) == template


def test_c13_c14_many_replicas_of_one_inode_write_at_once(store: Store, template: Template) -> None:
    made = [store.acquire(template.digest) for _ in range(20)]
    for index, each in enumerate(made):
        assert each.execute(f"BEGIN; UPDATE t SET b = {index}").outcome is Outcome.OK
    for index, each in enumerate(made):
        assert each.execute("COMMIT; SELECT min(b), max(b) FROM t").rows == [(index, index)]


def test_c15_c16_a_link_that_is_refused_is_named(store: Store, template: Template) -> None:
    def refuse(_source: Path, _target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    files = store._files
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(files), "link", staticmethod(refuse))
        with pytest.raises(LinkRefused) as caught:
            store.acquire(template.digest)
    assert caught.value.hint
    assert stat.S_IMODE(template.path.stat().st_mode) == 0o644


def test_c17_one_row_many_times_reaches_the_quota(replica: Replica) -> None:
    limits = Limits(wal_bytes=400_000)
    results = [replica.execute("UPDATE t SET b = b + 1 WHERE id = 1", limits) for _ in range(120)]
    assert results[0].outcome is Outcome.OK
    assert results[-1].outcome is Outcome.QUOTA
    assert replica.disk_bytes() < 410_000
    assert replica.execute("SELECT count(*) FROM t", limits).rows == [(100,)]


def test_c20_a_template_is_found_out_when_it_was_edited(store: Store, template: Template) -> None:
    with template.path.open("r+b") as file:
        file.seek(template.size_bytes - 30)
        file.write(b"EDITED")
    with pytest.raises(TemplateDamaged):
        store.templates.verify(template.digest)


class TestGuard:
    def test_the_main_descriptor_is_read_only(self, store: Store, template: Template, replica: Replica) -> None:
        replica.execute("UPDATE t SET a = 'x'")
        modes: list[int] = []
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
            try:
                if os.path.samestat(os.fstat(int(name)), template.path.stat()):
                    modes.append(fcntl.fcntl(int(name), fcntl.F_GETFL) & os.O_ACCMODE)
            except OSError:
                continue
        assert modes == [os.O_RDONLY]

    def test_another_layout_of_sqlites_struct_is_noticed(
        self, store: Store, template: Template, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Shifted(ctypes.Structure):
            _fields_ = (("pMethods", ctypes.c_void_p), ("h", ctypes.c_int))

        monkeypatch.setattr(vfs, "UnixFile", Shifted)
        with pytest.raises(GuardFailed):
            store.acquire(template.digest)
        assert list((store.root / "replicas").iterdir()) == []

    def test_a_descriptor_that_stays_writable_is_noticed(
        self, store: Store, template: Template, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "dup2", lambda *_arguments, **_named: 0)
        with pytest.raises(GuardFailed, match="still writable"):
            store.acquire(template.digest)


def test_d1_a_worker_ahead_of_the_base_can_branch_back(replica: Replica) -> None:
    base = replica.execute("INSERT INTO t(a) VALUES ('once')").position
    replica.execute("INSERT INTO t(a) VALUES ('never acknowledged')")
    again = replica.branch(base)
    again.execute("INSERT INTO t(a) VALUES ('second')")
    assert again.execute("SELECT a FROM t WHERE id > 100").rows == [("once",), ("second",)]
    again.release()


def test_d2_branching_leaves_the_parents_wal_alone(replica: Replica) -> None:
    base = replica.position
    replica.execute("UPDATE t SET a = 'x'; UPDATE t SET a = 'y'")
    before = OS_FILES.sha256(replica._wal)
    child = replica.branch(base)
    child.execute("UPDATE t SET a = 'child'")
    assert OS_FILES.sha256(replica._wal) == before
    replica.execute("UPDATE t SET a = 'late owner'")
    assert child.execute("SELECT DISTINCT a FROM t").rows == [("child",)]
    child.release()


def test_d3_positions_of_two_branches_differ(replica: Replica) -> None:
    base = replica.position
    first = replica.execute("UPDATE t SET a = 'one' WHERE id = 1").position
    other = replica.branch(base)
    second = other.execute("UPDATE t SET a = 'two' WHERE id = 1").position
    assert first.frames == second.frames
    assert first.checksum != second.checksum
    assert first.generation != second.generation
    for wrong in (
        second,
        Position(replica.generation, first.frames, second.checksum),
        Position(replica.generation, 99, (1, 2)),
    ):
        with pytest.raises(UnknownPosition):
            replica.branch(wrong)
    other.release()


def test_d6_pins_are_asked_of_sqlite(replica: Replica) -> None:
    def pinned_after(text: str) -> bool:
        return replica.execute(text).pinned

    assert not pinned_after("SELECT 1")
    assert pinned_after("BEGIN")
    assert pinned_after("SAVEPOINT s")
    assert not pinned_after("ROLLBACK")
    assert pinned_after("CREATE TEMP TABLE x(y)")
    assert not pinned_after("DROP TABLE x")
    assert pinned_after("ATTACH ':memory:' AS m")
    assert not pinned_after("DETACH m")
    assert not pinned_after("CREATE TABLE temporary(x)")


def test_d10_temporary_files_beyond_the_quota_end_the_statement(replica: Replica, store: Store) -> None:
    replica.execute("CREATE TABLE wide AS SELECT a.id, zeroblob(4000) z FROM t a, t b")
    limits = Limits(temp_bytes=4_000_000)
    for text in (
        "SELECT count(*) FROM (SELECT z || random() AS k FROM wide ORDER BY k)",
        "SELECT count(*) FROM (SELECT DISTINCT z || random() FROM wide)",
        "CREATE TEMP TABLE copy AS SELECT * FROM wide",
        "VACUUM",
    ):
        assert replica.execute(text, limits).outcome is Outcome.QUOTA, text
        assert replica.execute("SELECT count(*) FROM temp.sqlite_schema", limits).rows == [(0,)]
        assert list((store.root / "tmp").iterdir()) == []
    replica.execute("ATTACH ':memory:' AS m", limits)
    assert replica.execute("CREATE TABLE m.copy AS SELECT * FROM wide", limits).outcome is Outcome.QUOTA
    assert replica.execute("SELECT count(*) FROM wide", limits).rows == [(10_000,)]


def test_d11_written_statistics_pin(replica: Replica) -> None:
    assert not replica.execute("ANALYZE; ANALYZE").pinned
    assert replica.execute("UPDATE sqlite_stat1 SET stat = '1 1'").pinned


def test_d12_a_wal_of_another_template_is_never_opened(store: Store, template: Template, replica: Replica) -> None:
    other_source = store.root.parent / "other.db"
    with closing(sqlite3.connect(other_source)) as connection:
        connection.executescript("CREATE TABLE other(x); INSERT INTO other VALUES (1)")
    other = store.acquire(store.templates.publish(other_source).digest)
    position = other.execute("INSERT INTO other VALUES (2)").position
    with pytest.raises(UnknownPosition):
        replica.branch(position)


def test_d12_the_wal_hook_outlives_pragmas(replica: Replica) -> None:
    replica.execute("PRAGMA wal_autocheckpoint = 1000; PRAGMA wal_autocheckpoint")
    assert replica.execute("UPDATE t SET b = 1").position.frames > 0


def test_d14_parting_templates_and_replicas_is_named(template: Template, tmp_path: Path) -> None:
    shared_memory = Path("/dev/shm")
    if not shared_memory.is_dir() or shared_memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no second filesystem at /dev/shm")
    store = TemplateStore(template.path.parents[1])
    with pytest.raises(CrossDevice, match="ross-device"):
        store.link(template.digest, shared_memory / template.digest)


def test_a_child_that_imports_the_engine_has_no_connection() -> None:
    program = "import apsw, bird_snapshots; assert apsw.connections() == [], apsw.connections()"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_files_that_no_account_claims_are_opened_as_ever(store: Store, template: Template) -> None:
    path = store.root / "replicas" / "plain.db"
    OS_FILES.link(template.path, path)
    opened = connect.open_replica(path, Policy(), check=lambda: False, committed=lambda frames: None)
    account = vfs.TemporaryFiles(store.root / "tmp")
    query(opened.connection, "CREATE TEMP TABLE x AS SELECT randomblob(9000) FROM t, parent")
    assert account.bytes() == 0
    opened.connection.close()


def test_a_file_that_is_no_database_is_not_opened(store: Store, template: Template) -> None:
    path = store.root / "replicas" / "junk.db"
    path.write_bytes(b"junk" * 1_000)
    with pytest.raises((TemplateDamaged, EngineFault)):
        connect.open_replica(path, Policy(), check=lambda: False, committed=lambda frames: None)
