"""Deadlines by injected clocks, quotas by real bytes: what ends a statement, and what is left afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bird_snapshots.errors import ReplicaClosed
from bird_snapshots.execution import Execution
from bird_snapshots.failures import Outcome
from bird_snapshots.gate import Gate, Visit
from bird_snapshots.limits import Limits
from bird_snapshots.meter import Stop
from bird_snapshots.replica import Replica
from bird_snapshots.store import Store
from bird_snapshots.template import Template
from bird_snapshots.testing import SteppedClock

RUNAWAY = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c"


def wait_until(condition: Callable[[], bool]) -> None:
    """Look again and again, for at most half a minute."""
    looks = threading.Event()
    for _ in range(30_000):
        if condition():
            return
        looks.wait(0.001)
    raise AssertionError("it did not come to pass")


@pytest.fixture
def replica(store: Store, template: Template) -> Replica:
    return store.acquire(template.digest)


class TestDeadlines:
    @pytest.fixture
    def clock(self) -> SteppedClock:
        return SteppedClock()

    @pytest.fixture
    def clocked(self, store: Store, template: Template, clock: SteppedClock) -> Iterator[Replica]:
        store.close()
        with Store(store.root, clock=clock.clock) as again:
            yield again.acquire(template.digest)

    def test_processor_time_is_a_timeout(self, clocked: Replica, clock: SteppedClock) -> None:
        clock.cpu_step_s, clock.wall_step_s = 1.0, 1.0
        result = clocked.execute(RUNAWAY, Limits(cpu_s=20, wall_s=1_000))
        assert (result.outcome, result.rows_seen) == (Outcome.TIMEOUT, 0)
        assert result.error is not None
        assert "20 s of processor time" in result.error.message
        assert result.cpu_ms > 20_000

    def test_wall_time_before_it_is_starvation(self, clocked: Replica, clock: SteppedClock) -> None:
        clock.wall_step_s = 10.0
        result = clocked.execute(RUNAWAY, Limits(cpu_s=20, wall_s=50))
        assert result.outcome is Outcome.STARVED
        assert result.cpu_ms == 0

    def test_a_slow_wall_does_not_end_what_has_its_processor_time(self, clocked: Replica, clock: SteppedClock) -> None:
        clock.wall_step_s = 1.0
        assert clocked.execute("SELECT count(*) FROM t a, t b, t c", Limits(cpu_s=1, wall_s=1e6)).rows == [(10**6,)]

    def test_the_next_call_has_its_own_time(self, clocked: Replica, clock: SteppedClock) -> None:
        clock.cpu_step_s = 1.0
        assert clocked.execute(RUNAWAY, Limits(cpu_s=5)).outcome is Outcome.TIMEOUT
        assert clocked.execute("SELECT 1", Limits(cpu_s=5)).rows == [(1,)]

    def test_a_text_of_many_statements_has_one_time(self, clocked: Replica, clock: SteppedClock) -> None:
        clock.cpu_step_s = 1.0
        result = clocked.execute("INSERT INTO t(a) VALUES ('q');" * 50, Limits(cpu_s=10))
        assert result.outcome is Outcome.TIMEOUT
        assert 1 < len(result.statements) < 50
        count = clocked.execute("SELECT count(*) FROM t WHERE a = 'q'").rows
        assert count == [(len(result.statements) - 1,)], "what was committed before the deadline stays"

    def test_large_rows_are_looked_at_between_sqlites_own_looks(self, clocked: Replica, clock: SteppedClock) -> None:
        clock.cpu_step_s = 1.0
        result = clocked.execute("SELECT zeroblob(900000) FROM t", Limits(cpu_s=5, rows=1))
        assert result.outcome is Outcome.TIMEOUT
        returning = clocked.execute("UPDATE t SET a = zeroblob(900000) RETURNING a", Limits(cpu_s=5, rows=1))
        assert returning.outcome is Outcome.TIMEOUT
        assert clocked.execute("SELECT sum(length(a) > 100) FROM t").rows == [(0,)]

    def test_a_real_runaway_ends(self, replica: Replica) -> None:
        result = replica.execute(RUNAWAY, Limits(cpu_s=0.05))
        assert result.outcome is Outcome.TIMEOUT
        assert result.cpu_ms >= 50


class TestTurns:
    """What computes for long waits for its turn, and that is nobody's time."""

    @pytest.fixture
    def clock(self) -> SteppedClock:
        return SteppedClock()

    @pytest.fixture
    def gate(self) -> Gate:
        return Gate(1, after_s=5.0, slice_s=5.0)

    @pytest.fixture
    def shared(self, store: Store, clock: SteppedClock, gate: Gate) -> Iterator[Store]:
        store.close()
        with Store(store.root, clock=clock.clock, gate=gate) as again:
            yield again

    def test_a_short_call_never_comes_to_the_gate(self, shared: Store, template: Template, gate: Gate) -> None:
        gate.ask(Visit(), 0)
        called = list[None]()
        result = shared.acquire(template.digest).execute("SELECT 1", on_long=lambda: called.append(None))
        assert (result.rows, result.parked_ms, called) == ([(1,)], 0.0, [])

    def test_waiting_counts_neither_as_wall_time_nor_against_the_limit(
        self, shared: Store, template: Template, clock: SteppedClock, gate: Gate
    ) -> None:
        replica, blocker, longs = shared.acquire(template.digest), Visit(), list[None]()
        gate.ask(blocker, 0)
        results = list[Execution]()
        clock.cpu_step_s = 1.0
        limits = Limits(cpu_s=20, wall_s=50)
        thread = threading.Thread(
            target=lambda: results.append(replica.execute(RUNAWAY, limits, on_long=lambda: longs.append(None)))
        )
        thread.start()
        wait_until(lambda: gate.waiting == 1)
        clock.wall_s += 1_000
        replica._meter.watch()  # the watchdog, too, leaves a parked call alone
        gate.leave(blocker)
        thread.join(30)
        (result,) = results
        assert result.outcome is Outcome.TIMEOUT
        assert result.parked_ms == 1_000_000
        assert result.elapsed_ms == 0
        assert result.statements[0].elapsed_ms == 0
        assert len(longs) == 1
        assert gate.ask(Visit(), 0), "it has left the gate"

    def test_many_runaways_at_once_all_have_their_processor_time(self, store: Store, template: Template) -> None:
        store.close()
        gate = Gate(1, after_s=0.005, slice_s=0.005)
        with Store(store.root, gate=gate) as shared:
            replicas = [shared.acquire(template.digest) for _ in range(8)]
            results = list[Execution]()
            limits = Limits(cpu_s=0.05, wall_s=30)
            threads = [
                threading.Thread(target=lambda each=each: results.append(each.execute(RUNAWAY, limits)))
                for each in replicas
            ]
            for each in threads:
                each.start()
            for each in threads:
                each.join(60)
            assert [each.outcome for each in results] == [Outcome.TIMEOUT] * 8
            assert sum(each.parked_ms > 0 for each in results) >= 7

    @pytest.mark.parametrize("closed", ["replica", "store"])
    def test_a_parked_call_ends_with_its_replica(
        self, shared: Store, template: Template, clock: SteppedClock, gate: Gate, closed: str
    ) -> None:
        replica, caught = shared.acquire(template.digest), list[BaseException]()
        gate.ask(Visit(), 0)
        clock.cpu_step_s = 1.0

        def run() -> None:
            try:
                replica.execute(RUNAWAY, Limits(cpu_s=1_000))
            except ReplicaClosed as error:
                caught.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        wait_until(lambda: gate.waiting == 1)
        (replica.release if closed == "replica" else shared.close)()
        thread.join(30)
        assert len(caught) == 1
        assert gate.waiting == 0
        assert not list((shared.root / "replicas").iterdir())


class TestWatchdog:
    """Statements that SQLite does not look at for long: a row takes long, and 20,000 steps half a minute."""

    SLOW = """
        WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c),
        d(x, y) AS MATERIALIZED (SELECT printf('%.*c', 60000, 'a'), printf('%.*c', 40000, 'a') || 'b')
        SELECT sum(instr(x, y || i)) FROM c, d
    """

    @pytest.mark.parametrize(
        ("limits", "outcome"),
        [(Limits(cpu_s=0.05), Outcome.TIMEOUT), (Limits(cpu_s=600, wall_s=0.05), Outcome.STARVED)],
    )
    def test_they_end_by_the_same_limits(self, replica: Replica, limits: Limits, outcome: Outcome) -> None:
        result = replica.execute(self.SLOW, limits)
        assert result.outcome is outcome
        assert result.cpu_ms < 15_000, "it did not wait for SQLite's own look"
        assert replica.execute("SELECT count(*) FROM t").rows == [(100,)]

    def test_nothing_is_interrupted_that_has_time(self, store: Store, template: Template) -> None:
        store.close()
        clock = SteppedClock()
        with Store(store.root, clock=clock.clock) as again:
            replica = again.acquire(template.digest)
            meter = replica._meter
            meter.watch()  # nothing runs
            meter.start(Limits(cpu_s=5, wall_s=50))
            clock.cpu_s, clock.wall_s = 5.0, 50.0
            meter.watch()
            assert meter.stopped is None
            clock.wall_s = 51.0
            meter.watch()
            assert meter.stopped is Stop.WALL
            meter.finish()
            meter.start(Limits(cpu_s=5, wall_s=50))
            clock.cpu_s = 11.0
            meter.watch()
            assert meter.stopped is Stop.CPU
            assert meter.check()
            meter.finish()
            assert replica.execute("SELECT 1").rows == [(1,)], "an interrupt ends with its call"

    def test_release_ends_them(self, replica: Replica) -> None:
        caught, begun = list[BaseException](), threading.Event()

        def run() -> None:
            begun.set()
            try:
                replica.execute(self.SLOW, Limits(cpu_s=600))
            except ReplicaClosed as error:
                caught.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        wait_until(lambda: replica._meter.running)
        assert replica.release()
        thread.join(30)
        assert len(caught) == 1

    def test_what_cannot_be_ended_is_left_behind_and_removed_when_it_comes_back(
        self, store: Store, template: Template
    ) -> None:
        busy, idle = store.acquire(template.digest), store.acquire(template.digest)
        with busy._own():  # as a thread does that is deep in one row
            thread = threading.Thread(target=lambda: left.append(store.close(0.01)))
            left = list[int]()
            thread.start()
            thread.join(30)
            assert left == [1]
            assert store.close() == 0
            names = [path.name for path in (store.root / "replicas").iterdir()]
            assert [name for name in names if name.endswith(".db")] == [f"{busy.generation}.db"]
            with Store(store.root) as successor:
                assert list((successor.root / "replicas").iterdir()) == [], "its files are swept, it does no harm"
        with pytest.raises(ReplicaClosed):
            busy.execute("SELECT 1")
        with pytest.raises(ReplicaClosed):
            idle.execute("SELECT 1")
        assert busy.release()


class TestValues:
    @pytest.mark.parametrize(
        "text",
        [
            "SELECT length(printf('%.*c', 400000000, 'x') || printf('%.*c', 400000000, 'y'))",
            "SELECT zeroblob(1000001)",
            "SELECT replace(hex(zeroblob(50000000)), '00', 'ab')",
            "SELECT randomblob(900000000)",
            "WITH RECURSIVE r(s, n) AS (SELECT 'ab', 1 UNION ALL SELECT s || s, n + 1 FROM r WHERE n < 40)"
            " SELECT max(length(s)) FROM r",
            "SELECT length(group_concat(hex(zeroblob(5000)))) FROM t a, t b",
            "SELECT json_group_array(hex(zeroblob(5000))) FROM t a, t b",
            "INSERT INTO t(a) SELECT hex(zeroblob(600000))",
        ],
    )
    def test_bombs_end_as_a_limit_without_much_memory(self, replica: Replica, text: str) -> None:
        result = replica.execute(text)
        if result.outcome is Outcome.OK:  # printf gives NULL instead of an error
            assert result.rows == [(None,)]
        else:
            assert result.outcome is Outcome.LIMIT
            assert result.error is not None
            assert result.error.sqlite_code == "SQLITE_TOOBIG"
        assert replica.execute("SELECT count(*) FROM t").rows == [(100,)]

    def test_the_limit_is_the_calls_own(self, replica: Replica) -> None:
        assert replica.execute("SELECT zeroblob(5000)", Limits(value_bytes=4_000)).outcome is Outcome.LIMIT
        assert replica.execute("SELECT length(zeroblob(5000))", Limits(value_bytes=6_000)).rows == [(5000,)]
        assert replica.execute("SELECT length(zeroblob(900000))").rows == [(900_000,)]

    def test_a_very_wide_row_has_shorter_values(self, replica: Replica) -> None:
        wide = "SELECT " + ", ".join(["zeroblob({})"] * 2_000)
        assert replica.execute(wide.replace("{}", "40000")).outcome is Outcome.LIMIT
        assert replica.execute(wide.replace("{}", "3000"), Limits(rows=0)).outcome is Outcome.OK
        literal = "SELECT length('" + "x" * 900_000 + "')"
        result = replica.execute(f"{wide.replace('{}', '9')}; {literal}; SELECT length(zeroblob(1000000))")
        assert [each.outcome for each in result.statements] == [Outcome.OK] * 3

    def test_a_limit_within_a_transaction_keeps_it(self, replica: Replica) -> None:
        result = replica.execute("BEGIN; UPDATE t SET b = 1; SELECT zeroblob(2000000)")
        assert (result.outcome, result.in_transaction) == (Outcome.LIMIT, True)


class TestWalQuota:
    LIMITS = Limits(wal_bytes=2_000_000)
    GROW = "INSERT INTO t(a) SELECT hex(zeroblob(500)) || x.id FROM t x, t y, t z LIMIT 60000"

    def test_a_statement_over_it_is_undone_and_the_replica_lives(self, replica: Replica) -> None:
        for _ in range(3):
            result = replica.execute(self.GROW, self.LIMITS)
            assert result.outcome is Outcome.QUOTA
            assert result.position.frames == 0
            assert replica.execute("SELECT count(*) FROM t", self.LIMITS).rows == [(100,)]
        assert replica.execute("INSERT INTO t(a) VALUES ('small')", self.LIMITS).outcome is Outcome.OK

    def test_an_old_tail_of_the_file_does_not_count(self, replica: Replica) -> None:
        replica.execute(self.GROW, self.LIMITS)
        tail = replica.disk_bytes()
        assert tail > self.LIMITS.wal_bytes
        half = "INSERT INTO t(a) SELECT zeroblob(500) FROM t x, t y LIMIT 1500"
        assert replica.execute(half, self.LIMITS).outcome is Outcome.OK
        assert replica.execute("SELECT count(*) FROM t", self.LIMITS).rows == [(1_600,)]
        assert replica.disk_bytes() == tail

    def test_the_same_statement_again_does_not_grow_the_file_much(self, replica: Replica) -> None:
        replica.execute(self.GROW, self.LIMITS)
        first = replica.disk_bytes()
        for _ in range(5):
            replica.execute(self.GROW, self.LIMITS)
        assert replica.disk_bytes() < first + 5 * 3_000_000

    def test_over_it_in_a_transaction(self, replica: Replica) -> None:
        result = replica.execute(f"BEGIN; UPDATE t SET a = 'w'; {self.GROW}", self.LIMITS)
        assert (result.outcome, result.in_transaction, result.transaction_rolled_back) == (Outcome.QUOTA, False, True)

    def test_when_it_is_used_up_only_reading_is_left(self, replica: Replica) -> None:
        filled = [replica.execute("UPDATE t SET a = hex(randomblob(900))", self.LIMITS) for _ in range(20)]
        assert filled[-1].outcome is Outcome.QUOTA
        assert filled[-1].error is not None
        assert "2000000 bytes" in filled[-1].error.message
        position = filled[-1].position
        for text in ("DELETE FROM t", "CREATE TABLE x(y)", "DROP TABLE t"):
            assert replica.execute(text, self.LIMITS).outcome is Outcome.QUOTA
        assert replica.execute("BEGIN; SELECT count(*) FROM t; ROLLBACK", self.LIMITS).rows == [(100,)]
        assert replica.position == position
        assert replica.execute("UPDATE t SET b = 0", Limits(wal_bytes=9_000_000)).outcome is Outcome.OK

    def test_small_statements_of_one_transaction_are_summed(self, replica: Replica) -> None:
        replica.execute("BEGIN", self.LIMITS)
        outcomes = [
            replica.execute("INSERT INTO t(a) SELECT hex(randomblob(2000)) FROM t LIMIT 100", self.LIMITS).outcome
            for _ in range(12)
        ]
        assert outcomes[0] is Outcome.OK
        assert outcomes[-1] is Outcome.QUOTA
        assert replica.execute("ROLLBACK; SELECT count(*) FROM t", self.LIMITS).rows == [(100,)]
        assert replica.execute("INSERT INTO t(a) VALUES ('z')", self.LIMITS).outcome is Outcome.OK

    @pytest.mark.parametrize("quota", [0, 1, 32, 5_000, 100_000])
    def test_any_quota_ends(self, replica: Replica, quota: int) -> None:
        limits = Limits(wal_bytes=quota)
        outcomes = {replica.execute("UPDATE t SET b = b + 1", limits).outcome for _ in range(30)}
        assert Outcome.QUOTA in outcomes
        assert replica.disk_bytes() < quota + 100_000

    def test_a_doubling_trigger_ends(self, replica: Replica) -> None:
        replica.execute("CREATE TRIGGER g AFTER INSERT ON t BEGIN INSERT INTO t(a) SELECT 'x' FROM t; END")
        outcomes = [replica.execute("INSERT INTO t(a) VALUES ('q')", self.LIMITS).outcome for _ in range(30)]
        assert outcomes[-1] is Outcome.QUOTA
        assert replica.disk_bytes() < 8_000_000


def test_release_ends_a_running_statement(store: Store, template: Template) -> None:
    replica = store.acquire(template.digest)
    started, caught = threading.Event(), list[BaseException]()
    look = replica._meter.check

    def run() -> None:
        try:
            replica.execute(RUNAWAY, Limits(cpu_s=60, wall_s=60))
        except ReplicaClosed as error:
            caught.append(error)

    def noticed() -> bool:
        started.set()
        return look()

    replica._connection.set_progress_handler(noticed, 1_000)
    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(30)
    replica.release()
    thread.join(30)
    assert len(caught) == 1
    assert not list((store.root / "replicas").iterdir())


def test_temporary_files_are_each_replicas_own(store: Store, template: Template) -> None:
    small = Limits(temp_bytes=3_000_000)
    first, second = store.acquire(template.digest), store.acquire(template.digest)
    first.execute("CREATE TEMP TABLE big AS SELECT zeroblob(9000) z FROM t a, t b LIMIT 3000")
    assert first.disk_bytes() > 20_000_000
    assert second.disk_bytes() == 0
    assert second.execute("CREATE TEMP TABLE one AS SELECT zeroblob(9000) z FROM t", small).outcome is Outcome.OK
    assert first.execute("UPDATE big SET z = zeroblob(9001) WHERE rowid < 2000", small).outcome is Outcome.QUOTA
    assert store.statistics().bytes == first.disk_bytes() + second.disk_bytes()
    first.release()
    assert store.statistics().bytes == second.disk_bytes()


def test_descriptors_used_again_are_not_counted_twice(store: Store, template: Template) -> None:
    replicas = [store.acquire(template.digest) for _ in range(4)]
    for _ in range(5):
        for each in replicas:
            each.execute("SELECT count(*) FROM (SELECT a.a, zeroblob(2000) z FROM t a, t b ORDER BY random())")
            assert each.disk_bytes() == 0


def test_limits_are_checked(tmp_path: Path) -> None:
    for wrong in (
        {"cpu_s": 0},
        {"wall_s": -1},
        {"rows": -1},
        {"value_bytes": 10},
        {"wal_bytes": -1},
        {"temp_bytes": -1},
        {"result_bytes": -1},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Limits(**wrong)
