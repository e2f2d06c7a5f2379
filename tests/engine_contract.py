"""What every adapter of the engine port must do, as tests that each adapter's test class inherits.

The machine under the engine is in the test's hand: `Disk` is full when told to be, the clocks stand still unless a test
makes the wall run away. One table of the template has given out its last rowid, which is how a test makes SQLite itself
say SQLITE_FULL in the middle of a text.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bird_env.errors import BirdEnvError, InternalError, Starved, StoreFull, TrajectoryGone, UnknownDatabase
from bird_server.engine.port import Engine, FailedStatement
from bird_snapshots.execution import Execution
from bird_snapshots.failures import Outcome
from bird_snapshots.files import FileOps
from bird_snapshots.limits import Limits
from bird_snapshots.rows import Row
from bird_snapshots.template import TemplateStore
from bird_snapshots.testing import SteppedClock, assert_template_untouched

SCRIPT = """
CREATE TABLE t(a);
INSERT INTO t VALUES (1), (2), (3);
CREATE TABLE used_up(id INTEGER PRIMARY KEY AUTOINCREMENT, a);
INSERT INTO used_up VALUES (9223372036854775807, 'the last one');
CREATE VIEW v AS SELECT a FROM t;
"""

ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r"
FULL = "INSERT INTO used_up(a) VALUES ('one more')"
COUNT = "SELECT count(*) FROM t"
LIMITS = Limits(cpu_s=20, wall_s=200)


class Disk(FileOps):
    """A disk that has no room while `full`: for copies, for links, and when it is asked."""

    def __init__(self) -> None:
        self.full = False

    def _need_room(self) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def link(self, source: Path, target: Path) -> None:
        self._need_room()
        super().link(source, target)

    def copy(self, source: Path, target: Path, length: int | None = None) -> None:
        self._need_room()
        super().copy(source, target, length)

    def free_bytes(self, path: Path) -> int:
        return 0 if self.full else super().free_bytes(path)


@dataclass(frozen=True, slots=True)
class Rig:
    """A started engine over one template, and the machine under it."""

    engine: Engine
    digest: str
    disk: Disk
    clock: SteppedClock
    root: Path

    async def acquire(self, key: str = "k", *preprocess: str) -> FailedStatement | None:
        return await self.engine.acquire(key, self.digest, preprocess, LIMITS)

    async def run(self, text: str, key: str = "k", limits: Limits = LIMITS) -> Execution:
        return (await self.engine.execute(key, text, limits)).execution

    async def rows(self, text: str, key: str = "k") -> list[Row]:
        execution = await self.run(text, key)
        assert execution.outcome is Outcome.OK, execution.error
        return execution.rows

    async def starve(self, text: str, key: str = "k") -> BirdEnvError:
        """Run a text that is kept from the processor after its first looks at the clock; the fault it ends in."""
        self.clock.wall_step_s = 2.0
        try:
            with pytest.raises(BirdEnvError) as caught:
                await self.run(text, key)
        finally:
            self.clock.wall_step_s = 0.0
        return caught.value

    async def fill(self, text: str, key: str = "k") -> BirdEnvError:
        """Run a text while the disk is full; the fault it ends in."""
        self.disk.full = True
        try:
            with pytest.raises(BirdEnvError) as caught:
                await self.run(text, key)
        finally:
            self.disk.full = False
        return caught.value

    def files(self) -> list[str]:
        return sorted(path.name for path in (self.root / "replicas").iterdir())


class EngineContract(ABC):
    """Inherit, and say how the engine is made."""

    @abstractmethod
    def make(self, root: Path, disk: Disk, clock: SteppedClock) -> Engine:
        """An engine that is not started yet, on this store and this machine."""

    @pytest.fixture
    async def rig(self, tmp_path: Path) -> AsyncIterator[Rig]:
        source, root = tmp_path / "source.sqlite", tmp_path / "store"
        with closing(sqlite3.connect(source)) as connection:
            connection.executescript(SCRIPT)
        disk, clock = Disk(), SteppedClock()
        templates = TemplateStore(root)
        digest = templates.publish(source).digest
        with assert_template_untouched(templates, digest):
            engine = self.make(root, disk, clock)
            await engine.start()
            try:
                yield Rig(engine, digest, disk, clock, root)
            finally:
                await engine.stop()
        assert list((root / "replicas").iterdir()) == []

    # ---- acquire, execute, release ----

    async def test_a_replica_begins_as_its_template_and_keeps_what_is_done_to_it(self, rig: Rig) -> None:
        assert await rig.acquire() is None
        assert await rig.rows(COUNT) == [(3,)]
        await rig.run("INSERT INTO t VALUES (4); CREATE TEMP TABLE scratch(x); PRAGMA foreign_keys = ON")
        assert await rig.rows("SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM scratch)") == [(4, 0)]
        assert await rig.rows("PRAGMA foreign_keys") == [(1,)]

    async def test_an_unknown_template_is_an_unknown_database(self, rig: Rig) -> None:
        with pytest.raises(UnknownDatabase):
            await rig.engine.acquire("k", "0" * 64, [], LIMITS)
        with pytest.raises(UnknownDatabase):
            await rig.engine.schema("0" * 64)
        assert rig.engine.statistics().live == 0

    async def test_a_key_names_one_replica(self, rig: Rig) -> None:
        await rig.acquire()
        with pytest.raises(InternalError, match="in use"):
            await rig.acquire()
        at_once = await asyncio.gather(rig.acquire("n"), rig.acquire("n"), return_exceptions=True)
        assert sorted(type(each).__name__ for each in at_once) == ["InternalError", "NoneType"]
        assert rig.engine.statistics().live == 2

    async def test_a_key_that_is_not_held_runs_nothing(self, rig: Rig) -> None:
        with pytest.raises(InternalError, match="no replica"):
            await rig.run("SELECT 1", "nobody")

    async def test_release_can_be_repeated_and_frees_the_key(self, rig: Rig) -> None:
        await rig.engine.release("never was")
        await rig.acquire()
        assert len(rig.files()) > 0
        for _ in range(2):
            await rig.engine.release("k")
            assert rig.files() == []
        with pytest.raises(InternalError):
            await rig.run("SELECT 1")
        await rig.acquire()
        assert await rig.rows(COUNT) == [(3,)]

    async def test_what_sql_does_wrong_is_data(self, rig: Rig) -> None:
        await rig.acquire()
        execution = await rig.run("INSERT INTO t VALUES (4); SELECT nope; INSERT INTO t VALUES (5)")
        assert execution.outcome is Outcome.SQL_ERROR
        assert execution.error is not None
        assert execution.error.statement_index == 1
        assert await rig.rows(COUNT) == [(4,)]

    async def test_a_timeout_is_the_policys_and_leaves_the_replica_in_use(self, rig: Rig) -> None:
        await rig.acquire()
        rig.clock.cpu_step_s = 1.0
        execution = await rig.run(f"INSERT INTO t VALUES (4); {ENDLESS}")
        rig.clock.cpu_step_s = 0.0
        assert execution.outcome is Outcome.TIMEOUT
        assert await rig.rows(COUNT) == [(4,)]

    async def test_time_in_the_queue_is_told_apart(self, rig: Rig) -> None:
        for number in range(8):
            await rig.acquire(f"k{number}")
        ran = await asyncio.gather(*(rig.engine.execute(f"k{number}", COUNT, LIMITS) for number in range(8)))
        assert all(each.queue_ms >= 0 for each in ran)
        assert all(each.execution.rows == [(3,)] for each in ran)

    # ---- preprocess ----

    async def test_preprocess_stands_committed_whatever_it_left_open(self, rig: Rig) -> None:
        failed = await rig.acquire(
            "k", "CREATE TABLE n(x)", "BEGIN; INSERT INTO n VALUES (1)", "INSERT INTO n VALUES (2)"
        )
        assert failed is None
        assert (await rig.run("SELECT x FROM n")).rows == [(1,), (2,)]
        assert (await rig.run("ROLLBACK")).outcome is Outcome.SQL_ERROR

    async def test_preprocess_stops_at_its_first_failure_and_says_which(self, rig: Rig) -> None:
        statements = [
            "INSERT INTO t VALUES (4)",
            "BEGIN; DELETE FROM t; INSERT INTO nowhere VALUES (1)",
            "DELETE FROM t",
        ]
        failed = await rig.acquire("k", *statements)
        assert failed == FailedStatement(1, "no such table: nowhere")
        execution = await rig.run(COUNT)
        assert execution.rows == [(4,)]
        assert execution.in_transaction is False

    async def test_a_starved_preprocess_leaves_nothing(self, rig: Rig) -> None:
        rig.clock.wall_step_s = 2.0
        with pytest.raises(Starved):
            await rig.acquire("k", "INSERT INTO t VALUES (4)", ENDLESS)
        rig.clock.wall_step_s = 0.0
        assert rig.engine.statistics().live == 0
        assert rig.files() == []
        assert await rig.acquire() is None

    # ---- faults of ours ----

    async def test_a_starved_text_is_undone_whole(self, rig: Rig) -> None:
        await rig.acquire()
        await rig.run("INSERT INTO t VALUES (4)")
        fault = await rig.starve(f"INSERT INTO t VALUES (5); CREATE TABLE made(x); {ENDLESS}")
        assert isinstance(fault, Starved)
        assert fault.retryable
        assert await rig.rows("SELECT count(*), (SELECT count(*) FROM sqlite_schema WHERE name = 'made') FROM t") == [
            (4, 0)
        ]
        assert rig.engine.statistics().live == 1
        assert len([name for name in rig.files() if name.endswith(".db")]) == 1

    async def test_a_starved_read_costs_the_connection_nothing(self, rig: Rig) -> None:
        await rig.acquire()
        await rig.run("INSERT INTO t VALUES (4); PRAGMA foreign_keys = ON; PRAGMA case_sensitive_like = ON")
        assert isinstance(await rig.starve(ENDLESS), Starved)
        execution = await rig.run("SELECT last_insert_rowid(), changes(), 'A' LIKE 'a'")
        assert execution.rows == [(4, 1, 0)]
        assert await rig.rows("PRAGMA foreign_keys") == [(1,)]

    async def test_a_starved_read_inside_a_transaction_leaves_it_open(self, rig: Rig) -> None:
        await rig.acquire()
        await rig.run("CREATE TEMP TABLE scratch(x); BEGIN; INSERT INTO t VALUES (4)")
        assert isinstance(await rig.starve(ENDLESS), Starved)
        assert await rig.rows(COUNT) == [(4,)]
        assert (await rig.run("ROLLBACK; SELECT count(*) FROM t, scratch")).rows == [(0,)]
        assert await rig.rows(COUNT) == [(3,)]

    @pytest.mark.parametrize(
        "held",
        [
            "BEGIN; INSERT INTO t VALUES (4)",
            "CREATE TEMP TABLE scratch(x)",
            "ATTACH ':memory:' AS m",
            "PRAGMA foreign_keys = ON",
        ],
    )
    async def test_what_a_new_connection_would_lack_is_lost_and_said(self, rig: Rig, held: str) -> None:
        await rig.acquire()
        assert (await rig.run(held)).outcome is Outcome.OK
        fault = await rig.starve(f"INSERT INTO t VALUES (5); {ENDLESS}")
        assert isinstance(fault, TrajectoryGone)
        assert fault.fields["end_reason"] == "fault"
        assert "lost" in fault.detail
        await rig.engine.release("k")
        assert rig.files() == []

    async def test_settings_that_fail_or_only_read_are_nothing_to_lose(self, rig: Rig) -> None:
        await rig.acquire()
        await rig.run("PRAGMA table_info(t); PRAGMA user_version = 7; SELECT nope")
        assert isinstance(await rig.starve(f"INSERT INTO t VALUES (5); {ENDLESS}"), Starved)
        assert await rig.rows("PRAGMA user_version") == [(7,)]
        assert await rig.rows(COUNT) == [(3,)]

    async def test_no_room_for_a_replica_is_a_full_store(self, rig: Rig) -> None:
        rig.disk.full = True
        with pytest.raises(StoreFull) as caught:
            await rig.acquire()
        rig.disk.full = False
        assert caught.value.retryable
        assert rig.files() == []
        await rig.acquire()
        assert await rig.rows(COUNT) == [(3,)]

    async def test_a_full_disk_undoes_what_the_text_did_before(self, rig: Rig) -> None:
        await rig.acquire()
        await rig.run("INSERT INTO t VALUES (4)")
        text = f"INSERT INTO t VALUES (5); {FULL}"
        for _ in range(3):  # while there is no room it cannot even be undone, and must not be run on top of itself
            assert isinstance(await rig.fill(text), StoreFull)
        execution = await rig.run(text)  # with room, SQLite's word means the rowids, and is the policy's doing
        assert execution.outcome is Outcome.SQL_ERROR
        assert await rig.rows(COUNT) == [(5,)]

    async def test_a_full_disk_that_undid_the_statement_itself_leaves_reading_as_it_was(self, rig: Rig) -> None:
        await rig.acquire()
        await rig.run("INSERT INTO t VALUES (4); PRAGMA foreign_keys = ON")
        rig.disk.full = True
        with pytest.raises(StoreFull):
            await rig.run(FULL)
        assert await rig.rows(COUNT) == [(4,)]
        assert await rig.rows("PRAGMA foreign_keys") == [(1,)]
        rig.disk.full = False

    # ---- isolation ----

    async def test_keys_see_nothing_of_each_other(self, rig: Rig) -> None:
        await asyncio.gather(*(rig.acquire(f"k{number}") for number in range(6)))
        await asyncio.gather(
            *(
                rig.run(
                    f"UPDATE t SET a = {number}; CREATE TEMP TABLE mine{number}(x); PRAGMA user_version = {number};"
                    f" PRAGMA foreign_keys = {number % 2}",
                    f"k{number}",
                )
                for number in range(6)
            )
        )
        for number in range(6):
            key = f"k{number}"
            assert await rig.rows("SELECT DISTINCT a FROM t", key) == [(number,)]
            assert await rig.rows("SELECT name FROM sqlite_temp_schema", key) == [(f"mine{number}",)]
            assert await rig.rows("PRAGMA user_version", key) == [(number,)]
            assert await rig.rows("PRAGMA foreign_keys", key) == [(number % 2,)]

    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        script=st.lists(
            st.tuples(
                st.sampled_from("abc"),
                st.sampled_from(("insert", "begin", "commit", "rollback", "starve", "fill", "renew")),
            ),
            max_size=25,
        )
    )
    async def test_every_key_is_what_its_own_acknowledged_texts_made_of_it(
        self, rig: Rig, script: list[tuple[str, str]]
    ) -> None:
        """Against a model: a list a key of what is committed and, while a transaction is open, of what is not."""
        committed: dict[str, list[int]] = {key: [] for key in "abc"}
        pending: dict[str, list[int] | None] = dict.fromkeys("abc")
        for key in "abc":
            await rig.acquire(key)

        async def anew(key: str) -> None:
            await rig.engine.release(key)
            await rig.acquire(key)
            committed[key], pending[key] = [], None

        for number, (key, action) in enumerate(script, 10):
            open_now = pending[key]
            if action == "insert":
                await rig.run(f"INSERT INTO t VALUES ({number})", key)
                (committed[key] if open_now is None else open_now).append(number)
            elif action == "begin":
                assert (await rig.run("BEGIN", key)).outcome is (Outcome.OK if open_now is None else Outcome.SQL_ERROR)
                pending[key] = open_now if open_now is not None else []
            elif action in {"commit", "rollback"}:
                expected = Outcome.SQL_ERROR if open_now is None else Outcome.OK
                assert (await rig.run(action, key)).outcome is expected
                if open_now is not None and action == "commit":
                    committed[key] += open_now
                pending[key] = None
            elif action == "renew":
                await anew(key)
            else:
                text = f"INSERT INTO t VALUES ({number}); {ENDLESS if action == 'starve' else FULL}"
                fault = await (rig.starve if action == "starve" else rig.fill)(text, key)
                assert isinstance(fault, TrajectoryGone) == (open_now is not None)
                if open_now is not None:
                    await anew(key)
            for each in "abc":
                rows = await rig.rows("SELECT a FROM t WHERE a >= 10 ORDER BY rowid", each)
                assert [row[0] for row in rows] == [*committed[each], *(pending[each] or [])]
        for key in "abc":
            await rig.engine.release(key)
        assert rig.files() == []

    # ---- the engine about itself ----

    async def test_statistics_count_replicas_and_bytes(self, rig: Rig) -> None:
        before = rig.engine.statistics()
        assert (before.live, before.served, before.live_by_template) == (0, 0, {})
        await rig.acquire("a")
        await rig.acquire("b")
        await rig.run("INSERT INTO t SELECT zeroblob(1000) FROM t, t", "a")
        await rig.engine.release("b")
        found = rig.engine.statistics()
        assert (found.live, found.served) == (1, 2)
        assert found.live_by_template == {rig.digest: 1}
        assert found.served_by_template == {rig.digest: 2}
        assert found.disk_bytes > 9_000
        await rig.engine.release("a")
        assert rig.engine.statistics().disk_bytes == 0

    async def test_the_schema_is_the_templates(self, rig: Rig) -> None:
        await rig.acquire()
        await rig.run("DROP TABLE t")
        objects = {each.name: each for each in await rig.engine.schema(rig.digest, count=True)}
        assert {name: each.kind for name, each in objects.items()} == {"t": "table", "used_up": "table", "v": "view"}
        assert objects["t"].rows == 3
        assert {each.rows for each in await rig.engine.schema(rig.digest)} == {None}

    async def test_a_stopped_engine_holds_nothing_and_can_be_stopped_again(self, rig: Rig) -> None:
        await rig.acquire()
        for _ in range(2):
            await rig.engine.stop()
        assert rig.files() == []
        await rig.engine.release("k")
        for call in (rig.acquire(), rig.run("SELECT 1"), rig.engine.schema(rig.digest)):
            with pytest.raises(InternalError):
                await call
        with pytest.raises(InternalError):
            rig.engine.statistics()

    async def test_a_store_has_one_owner(self, rig: Rig) -> None:
        second = self.make(rig.root, rig.disk, rig.clock)
        with pytest.raises(InternalError) as caught:
            await second.start()
        assert caught.value.fields["engine_code"] == "store_busy"
        assert str(os.getpid()) in caught.value.detail
        await second.stop()
        assert await rig.acquire() is None
        await rig.engine.stop()
        await second.start()
        await second.stop()
