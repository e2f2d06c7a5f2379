"""A store's life: one owner, a sweep at the beginning, everything released at the end."""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from bird_snapshots.errors import SnapshotError, StoreBusy, StoreClosed, StoreFull
from bird_snapshots.failures import Outcome
from bird_snapshots.limits import Limits
from bird_snapshots.store import Store
from bird_snapshots.template import Template
from bird_snapshots.testing import FaultyFiles


def test_statistics(store: Store, template: Template) -> None:
    assert store.statistics().by_template == {}
    replicas = [store.acquire(template.digest) for _ in range(3)]
    replicas[0].execute("UPDATE t SET a = 'x'")
    replicas[1].release()
    child = replicas[0].branch()
    found = store.statistics()
    assert (found.live, found.served, found.by_template) == (3, 4, {template.digest: (3, 4)})
    assert found.bytes == replicas[0].disk_bytes() + child.disk_bytes() > 0
    assert found.bytes == sum(path.stat().st_size for path in (store.root / "replicas").glob("*-wal"))


def test_close_releases_everything_and_may_be_repeated(tmp_path: Path, store: Store, template: Template) -> None:
    replicas = [store.acquire(template.digest) for _ in range(5)]
    replicas[0].execute("BEGIN; DELETE FROM t")
    for _ in range(2):
        store.close()
    assert list((store.root / "replicas").iterdir()) == []
    with pytest.raises(StoreClosed):
        store.acquire(template.digest)
    with Store(store.root) as again:
        assert again.acquire(template.digest).execute("SELECT count(*) FROM t").rows == [(100,)]


def test_close_reports_what_went_wrong_and_closes_all_the_same(
    tmp_path: Path, store: Store, template: Template
) -> None:
    store.close()
    files = FaultyFiles("unlink", at=1)
    faulty = Store(store.root, files=files)
    for _ in range(3):
        faulty.acquire(template.digest)
    with pytest.raises(StoreFull):
        faulty.close()
    with Store(store.root):
        assert list((store.root / "replicas").iterdir()) == []


def test_a_store_that_was_not_closed_warns(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    with pytest.warns(ResourceWarning, match="was not closed"):
        store.__del__()
    store.close()
    store.__del__()


def test_the_owner_in_another_process_is_named(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from bird_snapshots import Store\n"
        "with Store(Path(sys.argv[1])): print('open', flush=True); sys.stdin.read()"
    )
    root = tmp_path / "store"
    command = [sys.executable, "-c", program, str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"open\n"
        with pytest.raises(StoreBusy) as caught:
            Store(root)
        owner.communicate()
    assert (caught.value.pid, caught.value.retryable) == (owner.pid, True)
    assert str(owner.pid) in str(caught.value)
    Store(root).close()


def test_functions_and_digits_of_the_scorer(tmp_path: Path, store: Store, template: Template) -> None:
    assert store.acquire(template.digest).execute("SELECT CAST(0.1 + 0.2 AS TEXT)").rows == [("0.30000000000000004",)]
    store.close()
    with Store(store.root, float_digits=15) as again:
        replica = again.acquire(template.digest)
        assert replica.execute("SELECT CAST(0.1 + 0.2 AS TEXT), 0.1 + 0.2").rows == [("0.3", 0.1 + 0.2)]
        assert replica.branch().execute("SELECT 2.5 || ''").rows == [("2.5",)]


def test_a_failed_opening_frees_the_lock(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError):
        Store(tmp_path / "store", files=FaultyFiles("names"))
    Store(tmp_path / "store").close()


def test_nothing_leaks_over_a_thousand_lives(store: Store, template: Template) -> None:
    def held() -> tuple[int, int, int]:
        gc.collect()
        files = sum(1 for _ in store.root.rglob("*"))
        return len(os.listdir("/proc/self/fd")), files, store.statistics().live  # noqa: PTH208

    store.acquire(template.digest).release()
    before = held()
    for index in range(1_000):
        replica = store.acquire(template.digest)
        replica.execute("UPDATE t SET b = 1 WHERE id = 5; SELECT CAST(x'ff' AS TEXT); SELEC")
        if index % 25 == 0:
            replica.execute(
                "CREATE TEMP TABLE x AS SELECT zeroblob(40000) FROM t;"
                "SELECT count(*) FROM (SELECT * FROM x ORDER BY random())"
            )
            replica.branch().release()
            replica.execute("SELECT count(*) FROM t a, t b, t c", Limits(cpu_s=0.001))
        replica.release()
    assert held() == before


DESCRIPTORS = """
import resource, sys
from pathlib import Path
from bird_snapshots import Store
from bird_snapshots.errors import StoreFull
resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
with Store(Path(sys.argv[1])) as store:
    digest, replicas, refused = sys.argv[2], [], 0
    for _ in range(40):
        try:
            replicas.append(store.acquire(digest))
        except StoreFull as error:
            refused += 1
            assert "descriptor" in error.hint.lower() or "NOFILE" in error.hint, error.hint
            assert "open files" in str(error), error
    assert refused > 5 and len(replicas) > 15, (refused, len(replicas))
    for replica in replicas:
        assert replica.execute("UPDATE t SET b = 1; SELECT count(*) FROM t").rows == [(100,)]
        try:
            replica.execute("SELECT count(*) FROM (SELECT zeroblob(100000) FROM t a, t b LIMIT 300 ORDER BY random())")
        except StoreFull:
            pass
    replicas.pop().release()
    replicas.pop().release()
    store.acquire(digest)
    names = [path.name for path in (Path(sys.argv[1]) / "replicas").iterdir() if path.name.endswith(".db")]
    assert len(names) == len(replicas) + 1
print("ok")
"""


def test_descriptors_used_up(store: Store, template: Template) -> None:
    store.close()
    done = subprocess.run(
        [sys.executable, "-c", DESCRIPTORS, str(store.root), template.digest], check=False, capture_output=True
    )
    assert done.stdout == b"ok\n", done.stderr.decode()


NO_ROOM = """
import resource, signal, sys
from pathlib import Path
from bird_snapshots import Store
from bird_snapshots.errors import EngineFault, StoreFull
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with Store(Path(sys.argv[1])) as store:
    replica, other = store.acquire(sys.argv[2]), store.acquire(sys.argv[2])
    other.execute("UPDATE t SET b = 1")
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    for text in (
        "CREATE TABLE huge AS SELECT zeroblob(9000) z FROM t",
        "CREATE TEMP TABLE many AS SELECT zeroblob(9000) z FROM t, t b",
    ):
        try:
            print(replica.execute(text))
        except (EngineFault, StoreFull) as error:
            assert "I/O" in str(error) or "large" in str(error), error
        else:
            raise SystemExit("a write that failed went unnoticed")
    assert replica.execute("SELECT count(*) FROM t").rows == [(100,)]
    assert other.execute("SELECT sum(b) FROM t").rows == [(100,)]
print("ok")
"""


def test_a_write_that_the_system_refuses_is_no_fault_of_the_sql(store: Store, template: Template) -> None:
    store.close()
    done = subprocess.run(
        [sys.executable, "-c", NO_ROOM, str(store.root), template.digest], check=False, capture_output=True
    )
    assert done.stdout == b"ok\n", done.stderr.decode() + done.stdout.decode()


def test_used_up_rowids_are_the_sqls_own(store: Store, template: Template) -> None:
    replica = store.acquire(template.digest)
    replica.execute(
        "CREATE TABLE k(id INTEGER PRIMARY KEY AUTOINCREMENT, a); INSERT INTO k VALUES (9223372036854775807, 'last')"
    )
    result = replica.execute("INSERT INTO k(a) VALUES ('more')")
    assert result.outcome is Outcome.SQL_ERROR
    assert result.error is not None
    assert result.error.sqlite_code == "SQLITE_FULL"


def test_the_limit_of_descriptors_can_be_read() -> None:
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 60
