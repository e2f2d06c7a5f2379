"""A live trajectory, as the wire shows it and as the ledger gives it back."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import timedelta

from bird_env.models import EndReason, Trajectory, TrajectoryStatus
from bird_server.ledger.store import Ledger
from bird_server.live import LiveTrajectory, replica_key, view_of_row
from bird_server.records import insert_trajectory, update_ended
from trajectory_rows import NOW, live


def test_a_replica_has_a_key_of_its_own_in_every_epoch() -> None:
    one = live("a", epoch=0)
    assert one.key == replica_key("a", 0)
    assert len({replica_key("a", 0), replica_key("a", 1), replica_key("a1", 0), replica_key("b", 0)}) == 4


def test_the_wire_shows_where_it_stands() -> None:
    one = live(epoch=2, next_step_index=5)
    one.lease_expires_at = NOW + timedelta(seconds=60)
    view = one.view()
    assert (view.status, view.epoch, view.next_step_index, view.max_steps) == (TrajectoryStatus.LIVE, 2, 5, 30)
    assert view.limits["rows"] == 7
    assert view.lease_expires_at == NOW + timedelta(seconds=60)
    assert (view.end_reason, view.ended_at, view.reward) == (None, None, None)
    shared = set(Trajectory.model_fields) & {field.name for field in fields(LiveTrajectory)} - {"limits"}
    assert {name: getattr(view, name) for name in shared} == {name: getattr(one, name) for name in shared}


async def test_one_that_was_kept_is_revived_at_its_beginning(ledger: Ledger) -> None:
    one = live(epoch=3, next_step_index=4)
    await ledger.write(insert_trajectory(one, "{}"))
    row = await ledger.trajectory("t1")
    assert row is not None
    revived = LiveTrajectory.revived(row)
    assert revived == replace(one, next_step_index=0, lifetime_deadline=0.0)


async def test_one_that_ended_is_shown_from_its_row(ledger: Ledger) -> None:
    one = live()
    await ledger.write(
        insert_trajectory(one, "{}"),
        update_ended(one, EndReason.MAX_STEPS, at=NOW + timedelta(seconds=9), steps=3),
    )
    row = await ledger.trajectory("t1")
    assert row is not None
    view = view_of_row(row)
    assert (view.status, view.end_reason) == (TrajectoryStatus.ENDED, EndReason.MAX_STEPS)
    assert (view.next_step_index, view.ended_at, view.lease_expires_at) == (3, NOW + timedelta(seconds=9), None)
    alike = set(Trajectory.model_fields) - {"status", "end_reason", "next_step_index", "ended_at"}
    before = one.view()
    assert {name: getattr(view, name) for name in alike} == {name: getattr(before, name) for name in alike}
