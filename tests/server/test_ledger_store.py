"""The ledger: groups of commits, failures of one, versions."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bird_env.errors import LedgerFault, ShuttingDown
from bird_env.models import EndReason, TrajectoryStatus
from bird_server.clock import FakeClock
from bird_server.ledger.store import INSERT_STEP, INSERT_TRAJECTORY, Ledger, Write, sqlite_url


def trajectory(name: str, **changes: Any) -> dict[str, Any]:
    now = FakeClock().now()
    return {
        "trajectory_id": name,
        "database": "shop",
        "template": "0" * 64,
        "status": "live",
        "closed": False,
        "epoch": 0,
        "next_step_index": 0,
        "limits": {},
        "lease_s": 1.0,
        "created_at": now,
        "lifetime_expires_at": now,
        "client_metadata": {"a": [1, None]},
        "format": "table",
        "preprocess_sql": ["SELECT '\ud83d'"],
        "fingerprint": "f",
        "first_observation": "{}",
        **changes,
    }


def step(name: str, index: int, epoch: int = 0) -> dict[str, Any]:
    return {
        "trajectory_id": name,
        "epoch": epoch,
        "step_index": index,
        "fingerprint": "f",
        "action": {"type": "execute_sql", "sql": "SELECT '\ud83d', '\0'"},
        "policy_version": 3,
        "outcome": "ok",
        "reply": "{}",
        "result_hash": "h",
        "in_transaction": False,
        "pinned": False,
        "position": None,
        "elapsed_ms": 1.0,
        "created_at": FakeClock().now(),
    }


async def test_what_was_written_reads_back(ledger: Ledger) -> None:
    await ledger.write(Write(INSERT_TRAJECTORY, trajectory("a", run_id="r")), Write(INSERT_STEP, step("a", 0)))
    row = await ledger.trajectory("a")
    assert row is not None
    assert row.client_metadata == {"a": [1, None]}
    assert row.preprocess_sql == ["SELECT '\ud83d'"]
    assert row.created_at == FakeClock().now()
    stored = await ledger.step("a", 0, 0)
    assert stored is not None
    assert stored.action["sql"] == "SELECT '\ud83d', '\0'"
    assert stored.policy_version == 3
    assert await ledger.trajectory("b") is None
    assert await ledger.step("a", 1, 0) is None


async def test_many_writers_at_once_are_committed_in_few_groups(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[int] = []
    commit = ledger._commit_together  # pyright: ignore[reportPrivateUsage]

    async def counted(group: Any) -> None:
        groups.append(len(group))
        await commit(group)

    monkeypatch.setattr(ledger, "_commit_together", counted)
    await asyncio.gather(*(ledger.write(Write(INSERT_TRAJECTORY, trajectory(f"t{n}"))) for n in range(200)))
    assert sum(groups) == 200
    assert len(groups) <= 3
    assert await ledger.count_live() == 200


async def test_a_bad_write_harms_only_itself(ledger: Ledger) -> None:
    await ledger.write(Write(INSERT_TRAJECTORY, trajectory("a")))
    outcomes = await asyncio.gather(
        *(ledger.write(Write(INSERT_TRAJECTORY, trajectory(name))) for name in ("b", "a", "c")),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [type(None), LedgerFault, type(None)]
    assert [row.trajectory_id for row in await ledger.trajectories()] == ["a", "b", "c"]


async def test_a_write_of_several_statements_stands_or_falls_whole(ledger: Ledger) -> None:
    await ledger.write(Write(INSERT_STEP, step("a", 0)))
    with pytest.raises(LedgerFault):
        await ledger.write(Write(INSERT_TRAJECTORY, trajectory("a")), Write(INSERT_STEP, step("a", 0)))
    assert await ledger.trajectory("a") is None


async def test_filters_and_pages(ledger: Ledger) -> None:
    for name, run, status in (("a", "r1", "live"), ("b", "r2", "ended"), ("c", "r1", "ended"), ("d", "r1", "live")):
        await ledger.write(Write(INSERT_TRAJECTORY, trajectory(name, run_id=run, status=status)))
    assert [row.trajectory_id for row in await ledger.trajectories(run_id="r1")] == ["a", "c", "d"]
    assert [row.trajectory_id for row in await ledger.trajectories(status=TrajectoryStatus.ENDED)] == ["b", "c"]
    first = await ledger.trajectories(limit=2)
    assert [row.trajectory_id for row in await ledger.trajectories(after_seq=first[-1].seq)] == ["c", "d"]


async def test_steps_come_in_order_of_epoch_and_index(ledger: Ledger) -> None:
    for epoch, index in ((1, 0), (0, 1), (0, 0), (0, 2)):
        await ledger.write(Write(INSERT_STEP, step("a", index, epoch)))
    rows = await ledger.steps("a")
    assert [(row.epoch, row.step_index) for row in rows] == [(0, 0), (0, 1), (0, 2), (1, 0)]
    rows = await ledger.steps("a", after=(0, 1), limit=1)
    assert [(row.epoch, row.step_index) for row in rows] == [(0, 2)]


async def test_trajectories_of_a_dead_process_are_ended_with_their_true_number_of_steps(ledger: Ledger) -> None:
    await ledger.write(
        Write(INSERT_TRAJECTORY, trajectory("a", epoch=1)),
        *(Write(INSERT_STEP, step("a", index, epoch)) for epoch, index in ((0, 0), (0, 1), (0, 2), (1, 0))),
    )
    await ledger.write(Write(INSERT_TRAJECTORY, trajectory("b")))
    assert await ledger.end_all_live(EndReason.SERVER_RESTARTED) == 2
    assert await ledger.end_all_live(EndReason.SERVER_RESTARTED) == 0
    rows = await ledger.trajectories()
    assert [(row.status, row.end_reason, row.closed, row.next_step_index) for row in rows] == [
        ("ended", "server_restarted", True, 1),
        ("ended", "server_restarted", True, 0),
    ]


async def test_a_closed_ledger_takes_nothing(tmp_path: Path) -> None:
    ledger = Ledger(sqlite_url(tmp_path / "ledger.db"), FakeClock())
    await ledger.start()
    assert await ledger.fault() is None
    await ledger.stop()
    await ledger.stop()
    with pytest.raises(ShuttingDown):
        await ledger.write(Write(INSERT_TRAJECTORY, trajectory("a")))
    assert await ledger.fault() is not None


async def test_a_file_that_is_no_ledger_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(b"this is not a database, only some text that somebody put here" * 100)
    before = path.read_bytes()
    with pytest.raises(LedgerFault) as caught:
        await Ledger(sqlite_url(path), FakeClock()).start()
    assert caught.value.hint
    assert path.read_bytes() == before


async def test_a_ledger_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = Ledger(sqlite_url(path), FakeClock())
    await ledger.start()
    await ledger.stop()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE ledger_info SET schema_version = 999")
    with pytest.raises(LedgerFault, match="999"):
        await Ledger(sqlite_url(path), FakeClock()).start()
