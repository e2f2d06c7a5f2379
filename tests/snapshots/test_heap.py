"""SQLite's memory: who set the limit, what runs into it, and whose fault that is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from bird_snapshots import heap
from bird_snapshots.errors import StoreFull
from bird_snapshots.failures import Outcome
from bird_snapshots.limits import Limits
from bird_snapshots.replica import Replica
from bird_snapshots.store import Store
from bird_snapshots.template import Template

ROOM = 40_000_000

#: 90 MB in one inner row, of few calls.
WIDE = f"SELECT {' + '.join(f'length(c{n})' for n in range(100))} FROM (SELECT {{}} LIMIT 1)".format(
    ", ".join(f"randomblob(900000) c{n}" for n in range(100))
)


@pytest.fixture(autouse=True)
def unlimited() -> Iterator[None]:
    before = apsw.hard_heap_limit(0)
    yield
    apsw.hard_heap_limit(0)
    apsw.hard_heap_limit(before)


@pytest.fixture
def replica(store: Store, template: Template) -> Replica:
    return store.acquire(template.digest)


@pytest.fixture
def little(replica: Replica) -> None:
    replica.execute("SELECT 1")
    heap.limit_heap(apsw.memory_used() + ROOM)


def test_the_first_store_takes_a_share_of_the_memory(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    apsw.hard_heap_limit(0)
    monkeypatch.setattr("bird_snapshots.heap.memory_bytes", lambda: 8_000_000_000)
    Store(tmp_path / "a").close()
    assert apsw.hard_heap_limit(-1) == 2_000_000_000
    monkeypatch.setattr("bird_snapshots.heap.memory_bytes", lambda: 16_000_000_000)
    Store(tmp_path / "b").close()
    assert apsw.hard_heap_limit(-1) == 2_000_000_000, "it is the process's, and set"
    Store(tmp_path / "c", heap_bytes=900_000_000).close()
    assert apsw.hard_heap_limit(-1) == 900_000_000
    apsw.hard_heap_limit(0)
    monkeypatch.setattr("bird_snapshots.heap.memory_bytes", lambda: 100_000_000)
    assert heap.limit_heap(None) == heap.LEAST_BYTES
    with pytest.raises(ValueError, match="heap_bytes"):
        Store(tmp_path / "d", heap_bytes=0)


@pytest.mark.usefixtures("little")
def test_a_statement_that_takes_all_of_it_is_at_fault_and_others_go_on(
    store: Store, template: Template, replica: Replica
) -> None:
    other = store.acquire(template.digest)
    replica.execute("BEGIN; UPDATE t SET b = 7")
    result = replica.execute(WIDE)
    assert result.outcome is Outcome.LIMIT
    assert result.error is not None
    assert result.error.sqlite_code == "SQLITE_NOMEM"
    assert result.in_transaction
    assert replica.execute("COMMIT; SELECT DISTINCT b FROM t").rows == [(7,)]
    assert other.execute("SELECT count(*) FROM t").rows == [(100,)]
    assert store.acquire(template.digest).execute("SELECT count(*) FROM t").rows == [(100,)]


@pytest.mark.usefixtures("little")
def test_an_attached_database_is_its_own_replicas_doing(store: Store, template: Template, replica: Replica) -> None:
    replica.execute("ATTACH ':memory:' AS m")
    result = replica.execute("CREATE TABLE m.big AS SELECT randomblob(900000) FROM t")
    assert result.outcome is Outcome.LIMIT
    replica.release()
    assert store.acquire(template.digest).execute("SELECT count(*) FROM t").rows == [(100,)]


def test_what_fails_while_others_hold_the_memory_is_not_at_fault(
    store: Store, template: Template, replica: Replica
) -> None:
    holder = store.acquire(template.digest)
    holder.execute("ATTACH ':memory:' AS m; CREATE TABLE m.big AS SELECT randomblob(900000) FROM t LIMIT 50")
    heap.limit_heap(apsw.memory_used() + 5_000_000)
    position = replica.position
    with pytest.raises(StoreFull, match="memory"):
        replica.execute("SELECT " + ", ".join(["randomblob(900000)"] * 10))
    assert replica.position == position
    assert replica.execute("SELECT count(*) FROM t").rows == [(100,)]
    holder.release()
    assert replica.execute("SELECT " + ", ".join(["randomblob(900000)"] * 10)).outcome is Outcome.OK


@pytest.mark.parametrize("ask", [Replica.branch, Replica.reset])
def test_no_memory_for_another_replica_is_a_full_store(
    store: Store, replica: Replica, ask: Callable[[Replica], object]
) -> None:
    apsw.hard_heap_limit(1)
    with pytest.raises(StoreFull, match="memory"):
        ask(replica)
    apsw.hard_heap_limit(0)
    assert store.statistics().live == 1
    assert replica.execute("SELECT count(*) FROM t").rows == [(100,)]


@pytest.mark.parametrize("error", [MemoryError(), apsw.NoMemError("out of memory")])
def test_the_engines_own_want_of_memory_is_nobodys_sql(
    replica: Replica, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def pinned() -> bool:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(replica, "_pinned", pinned)
        with pytest.raises(StoreFull, match="executing"):
            replica.execute("UPDATE t SET b = 1")
    assert replica.execute("SELECT count(*) FROM t").rows == [(100,)]


def test_values_are_shorter_where_functions_are_very_many(replica: Replica) -> None:
    many = ", ".join(f"randomblob({{0}}) c{n}" for n in range(1_900))
    wide = f"SELECT {' + '.join(f'length(c{n})' for n in range(900))} FROM (SELECT {many} LIMIT 1)"
    before = apsw.memory_high_water(True)
    result = replica.execute(wide.replace("{0}", "990000"))
    assert (result.outcome, result.error and result.error.sqlite_code) == (Outcome.LIMIT, "SQLITE_TOOBIG")
    assert apsw.memory_high_water() < before + 50_000_000
    assert replica.execute(wide.replace("{0}", "1000")).rows == [(900_000,)]
    assert replica.execute("SELECT length(zeroblob(1000000))").rows == [(1_000_000,)]


def test_an_attached_database_may_take_little_of_what_all_share(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bird_snapshots.meter.MEMORY_BYTES", 5_000_000)
    grow = "CREATE TABLE m.big AS SELECT randomblob(9000) z FROM t a, t b"
    result = replica.execute(f"ATTACH ':memory:' AS m; {grow}", Limits(temp_bytes=500_000_000))
    assert result.outcome is Outcome.QUOTA
    assert result.error is not None
    assert "in memory" in result.error.message
    assert replica.execute("DETACH m; SELECT count(*) FROM t").rows == [(100,)]
