"""Many replicas at once, threads, and processes that are killed: templates stay, nothing is mixed up, orphans go."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bird_snapshots.failures import Outcome
from bird_snapshots.files import OS_FILES
from bird_snapshots.limits import Limits
from bird_snapshots.store import Store
from bird_snapshots.template import Template, TemplateStore
from bird_snapshots.testing import assert_template_untouched

Maker = Callable[..., Path]

EVIL = (
    "PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode = DELETE; PRAGMA locking_mode = NORMAL",
    "PRAGMA journal_mode = OFF; PRAGMA journal_mode = MEMORY; UPDATE t SET b = b",
    "PRAGMA wal_autocheckpoint = 1; UPDATE t SET b = b; PRAGMA mmap_size = 0; PRAGMA synchronous = FULL",
    "VACUUM; PRAGMA wal_checkpoint",
    "BEGIN; CREATE TABLE z AS SELECT hex(randomblob(500)) h FROM t a, t b LIMIT 500; ROLLBACK",
    "BEGIN; UPDATE t SET a = hex(randomblob(300)); SAVEPOINT s; DELETE FROM t; ROLLBACK TO s; COMMIT",
)


def live(store: Store, digest: str, number: int) -> int:
    """One trajectory: writes its own number everywhere, tries evil things, and reads only its own number back."""
    replica = store.acquire(digest)
    replica.execute(f"UPDATE t SET b = {number}; CREATE TEMP TABLE mine AS SELECT {number} AS n")
    for text in EVIL:
        assert replica.execute(text).outcome is Outcome.OK, text
    child = replica.branch()
    replica.execute("UPDATE t SET b = -1")
    assert child.execute("SELECT min(b), max(b), count(*) FROM t").rows == [(number, number, 100)]
    assert child.execute("SELECT count(*) FROM temp.sqlite_schema; PRAGMA quick_check").rows == [("ok",)]
    assert replica.execute("SELECT n, b FROM mine, t LIMIT 1").rows == [(number, -1)]
    fresh = replica.reset(release=True)
    assert fresh.execute("SELECT sum(b) FROM t").rows == [(50_500,)]
    for each in (child, fresh):
        each.release()
    return number


def test_two_hundred_trajectories_on_eight_threads(store: Store, template: Template) -> None:
    with assert_template_untouched(store.templates, template.digest):
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda number: live(store, template.digest, number), range(200)))
        assert found == list(range(200))
        assert store.statistics().live == 0
        assert list((store.root / "replicas").iterdir()) == []


def test_two_hundred_live_at_once(store: Store, template: Template) -> None:
    with assert_template_untouched(store.templates, template.digest):
        replicas = [store.acquire(template.digest) for _ in range(200)]
        for number, each in enumerate(replicas):
            each.execute(f"UPDATE t SET b = {number} WHERE id <= 10")
        assert [each.execute("SELECT min(b) FROM t WHERE id <= 10").rows[0][0] for each in replicas] == list(range(200))
        assert store.statistics().bytes < 200 * 10_000, "a page or two each, not a copy"


def test_a_statement_of_one_is_not_ended_by_the_deadline_of_another(store: Store, template: Template) -> None:
    one, two = store.acquire(template.digest), store.acquire(template.digest)
    runaway = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c"
    outcomes: list[Outcome] = []

    def run() -> None:
        for _ in range(10):
            outcomes.append(one.execute(runaway, Limits(cpu_s=0.01)).outcome)

    thread = threading.Thread(target=run)
    thread.start()
    others = {two.execute("SELECT count(*) FROM t a, t b").outcome for _ in range(200)}
    thread.join(60)
    assert outcomes == [Outcome.TIMEOUT] * 10
    assert others == {Outcome.OK}


HOLDER = """
import sys
from pathlib import Path
from bird_snapshots import Store
store = Store(Path(sys.argv[1]))
replicas = [store.acquire(sys.argv[2]) for _ in range(30)]
for number, replica in enumerate(replicas):
    replica.execute(f"UPDATE t SET a = 'written by {number}'; CREATE TEMP TABLE x AS SELECT zeroblob(30000) FROM t")
    if number % 3 == 0:
        replica.execute("BEGIN; CREATE TABLE huge AS SELECT hex(randomblob(2000)) FROM t a, t b LIMIT 200")
print("ready", flush=True)
while True:
    for replica in replicas:
        replica.execute("UPDATE t SET b = b + 1")
"""

PUBLISHER = """
import sys
from pathlib import Path
from bird_snapshots import TemplateStore
templates = TemplateStore(Path(sys.argv[1]))
print("ready", flush=True)
while True:
    templates.publish(Path(sys.argv[2]))
"""


def killed_while_running(program: str, *arguments: str) -> None:
    command = [sys.executable, "-c", program, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL


def test_a_killed_owner_leaves_whole_templates_and_swept_orphans(store: Store, template: Template) -> None:
    store.close()
    before = OS_FILES.sha256(template.path)
    for _ in range(2):
        killed_while_running(HOLDER, str(store.root), template.digest)
        assert len(list((store.root / "replicas").glob("*.db"))) == 30
        with Store(store.root) as again:
            assert list((store.root / "replicas").iterdir()) == []
            assert list((store.root / "tmp").iterdir()) == []
            again.templates.verify(template.digest)
            assert again.acquire(template.digest).execute("SELECT sum(b) FROM t").rows == [(50_500,)]
    assert OS_FILES.sha256(template.path) == before
    TemplateStore(store.root).remove(template.digest)


def test_a_killed_publisher_leaves_whole_templates_or_none(tmp_path: Path, make_database: Maker) -> None:
    source = make_database(
        "CREATE TABLE t AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
        " SELECT i, hex(randomblob(50)) h FROM n"
    )
    root = tmp_path / "store"
    for _ in range(4):
        killed_while_running(PUBLISHER, str(root), str(source))
        with Store(root) as store:
            assert list((root / "tmp").iterdir()) == []
            for each in store.templates.list():
                store.templates.verify(each.digest)


def test_replicas_left_by_a_kill_still_open_with_what_was_committed(
    tmp_path: Path, store: Store, template: Template
) -> None:
    store.close()
    killed_while_running(HOLDER, str(store.root), template.digest)
    left = sorted((store.root / "replicas").glob("*.db"))[:5]
    for number, path in enumerate(left):  # copies: the kill may have come at any moment
        copy = tmp_path / f"{number}.db"
        copy.write_bytes(path.read_bytes())
        copy.with_name(copy.name + "-wal").write_bytes(path.with_name(path.name + "-wal").read_bytes())
        with Store(tmp_path / f"other{number}") as other:
            replica = other.acquire(other.templates.publish(copy).digest)
            assert replica.execute("SELECT count(*) FROM t WHERE a LIKE 'written by %'").rows == [(100,)]
            assert replica.execute("PRAGMA integrity_check").rows == [("ok",)]


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no tmpfs at /dev/shm")
def test_on_tmpfs(make_database: Maker) -> None:
    root = Path("/dev/shm") / f"bird-test-{os.getpid()}"
    try:
        with Store(root) as store:
            template = store.templates.publish(make_database())
            with assert_template_untouched(store.templates, template.digest):
                assert live(store, template.digest, 7) == 7
    finally:
        OS_FILES.remove_tree(root)
