"""One replica: its positions, branches and resets, its end, and its one owner."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bird_snapshots.errors import ReplicaBusy, ReplicaClosed, UnknownPosition
from bird_snapshots.failures import Outcome
from bird_snapshots.files import sidecar
from bird_snapshots.format import valid_frames, wal_bytes
from bird_snapshots.position import Position
from bird_snapshots.replica import Replica
from bird_snapshots.store import Store
from bird_snapshots.template import Template
from bird_snapshots.testing import assert_template_untouched

Maker = Callable[..., Path]


@pytest.fixture
def replica(store: Store, template: Template) -> Replica:
    return store.acquire(template.digest)


def wal(replica: Replica) -> bytes:
    return sidecar(replica._path, "-wal").read_bytes()


class TestPositions:
    def test_a_new_replica_stands_at_its_template(self, replica: Replica) -> None:
        assert replica.position == Position(replica.generation, 0)
        assert replica.execute("SELECT * FROM t; BEGIN; UPDATE t SET a = 'x'; ROLLBACK").position.frames == 0
        assert replica.disk_bytes() == 0

    def test_the_checksum_is_the_last_committed_frames(self, replica: Replica) -> None:
        for index in range(5):
            position = replica.execute(f"UPDATE t SET a = 'é{index}' WHERE id % 7 = {index}").position
            frames = list(valid_frames(wal(replica)))
            assert (position.frames, position.checksum) == (len(frames), frames[-1].checksum)
            assert frames[-1].commit_pages > 0

    def test_frames_of_what_was_rolled_back_do_not_count(self, replica: Replica) -> None:
        before = replica.execute("UPDATE t SET a = 'kept'").position
        replica.execute("BEGIN; CREATE TABLE huge AS SELECT hex(zeroblob(2000)) h FROM t x, t y LIMIT 3000; ROLLBACK")
        assert len(wal(replica)) > wal_bytes(before.frames, 4096)
        assert replica.position == before
        child = replica.branch()
        assert child.execute("SELECT DISTINCT a FROM t; PRAGMA integrity_check").rows == [("ok",)]
        assert len(wal(child)) == wal_bytes(before.frames, 4096)

    @pytest.mark.parametrize("page_size", [512, 1024, 65536])
    def test_other_page_sizes(self, store: Store, make_database: Maker, page_size: int) -> None:
        source = make_database(before=f"PRAGMA page_size = {page_size};")
        made = store.acquire(store.templates.publish(source).digest)
        position = made.execute("UPDATE t SET a = 'x'").position
        assert position.checksum == list(valid_frames(wal(made)))[-1].checksum
        assert made.branch().execute("SELECT DISTINCT a FROM t").rows == [("x",)]

    def test_a_position_makes_sense(self) -> None:
        for frames, checksum in ((-1, None), (0, (1, 2)), (3, None)):
            with pytest.raises(ValueError, match="not a position"):
                Position("0" * 32, frames, checksum)


class TestBranches:
    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(steps=st.lists(st.integers(0, 5), min_size=1, max_size=8), back=st.integers(0, 8))
    def test_any_committed_state_can_be_branched_from(
        self, store: Store, template: Template, steps: list[int], back: int
    ) -> None:
        parent = store.acquire(template.digest)
        texts = (
            "INSERT INTO t(a) VALUES ('new')",
            "DELETE FROM t WHERE id % 9 = 3",
            "CREATE TABLE IF NOT EXISTS more AS SELECT * FROM t",
            "VACUUM",
            "BEGIN; UPDATE t SET b = b + 1; UPDATE t SET a = b; COMMIT",
            "SAVEPOINT s; DELETE FROM t; ROLLBACK TO s; UPDATE t SET b = 0 WHERE id = 5; RELEASE s",
        )
        states = [(parent.position, parent.execute("SELECT * FROM t").digest)]
        for step in steps:
            position = parent.execute(texts[step]).position
            states.append((position, parent.execute("SELECT * FROM t").digest))
        position, expected = states[min(back, len(states) - 1)]
        child = parent.branch(position)
        assert child.execute("SELECT * FROM t").digest == expected
        assert child.execute("PRAGMA integrity_check").rows == [("ok",)]
        assert child.execute("UPDATE t SET a = 'child'").outcome is Outcome.OK
        assert parent.execute("SELECT * FROM t").digest == states[-1][1]
        assert child.position.frames > position.frames
        assert child.branch(child.position).execute("SELECT count(*) FROM t WHERE a <> 'child'").rows == [(0,)]
        for each in (parent, child):
            each.release()

    def test_what_is_not_committed_is_not_branched(self, replica: Replica) -> None:
        replica.execute("UPDATE t SET a = 'committed'; BEGIN; UPDATE t SET a = 'open'; CREATE TEMP TABLE scratch(x)")
        child = replica.branch()
        assert child.execute("SELECT DISTINCT a FROM t").rows == [("committed",)]
        assert (child.pinned, child.in_transaction) == (False, False)
        assert replica.execute("COMMIT; SELECT DISTINCT a FROM t").rows == [("open",)]

    def test_a_frame_within_a_commit_is_no_position(self, replica: Replica) -> None:
        position = replica.execute("UPDATE t SET a = hex(zeroblob(200))").position
        frames = list(valid_frames(wal(replica)))
        assert position.frames > 2
        with pytest.raises(UnknownPosition):
            replica.branch(Position(replica.generation, 1, frames[0].checksum))

    def test_children_of_children(self, replica: Replica) -> None:
        chain = [replica]
        for index in range(10):
            chain[-1].execute(f"INSERT INTO t(a) VALUES ('level {index}')")
            chain.append(chain[-1].branch())
        counts = [each.execute("SELECT count(*) FROM t").rows[0][0] for each in chain]
        assert counts == [*range(101, 111), 110]


class TestResets:
    def test_back_to_the_template_in_every_respect(self, store: Store, template: Template, replica: Replica) -> None:
        fresh_start = replica.execute("SELECT total_changes(), changes(), last_insert_rowid()").rows
        replica.execute(
            "CREATE TEMP TABLE t AS SELECT 'forged' AS a; PRAGMA foreign_keys = ON; PRAGMA case_sensitive_like = ON;"
            "PRAGMA query_only = OFF; PRAGMA ignore_check_constraints = ON; PRAGMA reverse_unordered_selects = ON;"
            "INSERT INTO main.t(a) VALUES ('x'); ATTACH ':memory:' AS m; BEGIN; DELETE FROM main.t"
        )
        with assert_template_untouched(store.templates, template.digest):
            fresh = replica.reset()
        assert fresh.generation != replica.generation
        assert fresh.execute("SELECT count(*), max(a LIKE 'ROW 1') FROM t").rows == [(100, 1)]
        names = ("foreign_keys", "ignore_check_constraints", "reverse_unordered_selects", "query_only")
        assert [fresh.execute(f"PRAGMA {name}").rows for name in names] == [[(0,)]] * 4
        assert fresh.execute("SELECT total_changes(), changes(), last_insert_rowid()").rows == fresh_start
        assert (fresh.pinned, fresh.in_transaction, fresh.position.frames) == (False, False, 0)
        assert replica.execute("SELECT a FROM t").rows == [("forged",)], "the old one lives until it is released"

    def test_releasing_the_old_one(self, store: Store, replica: Replica) -> None:
        fresh = replica.reset(release=True)
        with pytest.raises(ReplicaClosed):
            replica.execute("SELECT 1")
        assert store.statistics().live == 1
        assert fresh.execute("SELECT 1").rows == [(1,)]


class TestEnd:
    def test_release_removes_every_file_and_may_be_repeated(self, store: Store, replica: Replica) -> None:
        replica.execute(
            "UPDATE t SET a = 'x'; BEGIN; DELETE FROM t; CREATE TEMP TABLE huge AS SELECT zeroblob(90000) FROM t"
        )
        for _ in range(3):
            replica.release()
        assert list((store.root / "replicas").iterdir()) == []
        assert list((store.root / "tmp").iterdir()) == []

    def test_everything_but_release_is_refused_afterwards(self, replica: Replica) -> None:
        replica.release()
        calls: list[Callable[[], object]] = [
            lambda: replica.execute("SELECT 1"),
            replica.branch,
            replica.reset,
            replica.disk_bytes,
            lambda: replica.position,
            lambda: replica.pinned,
            lambda: replica.in_transaction,
        ]
        for call in calls:
            with pytest.raises(ReplicaClosed):
                call()
        assert replica.generation in f"{replica.generation}"


class TestOneOwner:
    def test_a_second_thread_gets_an_error_and_no_interleaving(self, replica: Replica) -> None:
        inside, leave = threading.Event(), threading.Event()

        def hold() -> bool:
            inside.set()
            leave.wait(30)
            return False

        replica._connection.set_progress_handler(hold, 10)
        thread = threading.Thread(target=replica.execute, args=("SELECT count(*) FROM t a, t b",))
        thread.start()
        assert inside.wait(30)
        for call in (lambda: replica.execute("DELETE FROM t"), replica.branch, replica.disk_bytes):
            with pytest.raises(ReplicaBusy):
                call()
        leave.set()
        thread.join(30)
        assert replica.execute("SELECT count(*) FROM t").rows == [(100,)]

    def test_threads_may_take_turns(self, replica: Replica) -> None:
        replica.execute("BEGIN; CREATE TEMP TABLE x(y)")
        for index in range(5):
            thread = threading.Thread(target=replica.execute, args=(f"INSERT INTO x VALUES ({index})",))
            thread.start()
            thread.join()
        assert replica.execute("SELECT sum(y) FROM x").rows == [(10,)]


def test_no_replica_sees_anothers_rows_temp_objects_pragmas_or_counters(store: Store, template: Template) -> None:
    one, two = store.acquire(template.digest), store.acquire(template.digest)
    one.execute("INSERT INTO t(a) VALUES ('canary'); CREATE TEMP TABLE canary(x); PRAGMA recursive_triggers = ON")
    one.execute("ATTACH ':memory:' AS canaries; PRAGMA case_sensitive_like = ON")
    expected = [[(0,)], [(0,)], [(1,)], [(0, 0)]]
    texts = (
        "SELECT count(*) FROM t WHERE a = 'canary'",
        "SELECT count(*) FROM temp.sqlite_schema",
        "SELECT 'A' LIKE 'a'",
        "SELECT changes(), last_insert_rowid()",
    )
    assert [two.execute(text).rows for text in texts] == expected
    assert two.execute("SELECT name FROM pragma_database_list").rows == [("main",), ("temp",)]


def test_a_replica_can_be_read_by_stock_sqlite_after_it_was_copied(replica: Replica, tmp_path: Path) -> None:
    replica.execute("UPDATE t SET a = 'in the wal'")
    copy = tmp_path / "copy.db"
    copy.write_bytes(replica._path.read_bytes())
    sidecar(copy, "-wal").write_bytes(wal(replica))
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT DISTINCT a FROM t").fetchall() == [("in the wal",)]
