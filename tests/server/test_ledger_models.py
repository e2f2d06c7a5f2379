"""The ledger's tables: what they keep of dates, and that each of them is known by name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy import make_url
from sqlalchemy.schema import CreateTable

from bird_server.ledger.models import (
    Base,
    LedgerInfo,
    ReplyRow,
    ScoreRow,
    StepRow,
    TrajectoryRow,
    UtcDateTime,
    table_of,
)

ROWS: list[type[Base]] = [LedgerInfo, TrajectoryRow, StepRow, ScoreRow, ReplyRow]

DIALECTS = {name: make_url(f"{name}://").get_dialect()() for name in ("sqlite", "postgresql")}


def test_a_moment_is_the_same_moment_when_it_is_read() -> None:
    column, dialect = UtcDateTime(), DIALECTS["sqlite"]
    for moment in (
        datetime(2030, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC),
        datetime(2030, 1, 2, 3, tzinfo=timezone(timedelta(hours=-7))),
    ):
        kept = column.process_bind_param(moment, dialect)
        assert kept is not None
        assert kept.tzinfo is None
        found = column.process_result_value(kept, dialect)
        assert found is not None
        assert (found, found.tzinfo) == (moment, UTC)
    assert column.process_bind_param(None, dialect) is None
    assert column.process_result_value(None, dialect) is None


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.__name__))
def test_each_row_has_its_table_and_it_can_be_made_in_both_databases(row: type[Base]) -> None:
    table = table_of(row)
    assert table.name == row.__tablename__
    for dialect in DIALECTS.values():
        assert f"CREATE TABLE {table.name}" in str(CreateTable(table).compile(dialect=dialect))


def test_these_are_all() -> None:
    assert set(Base.metadata.tables) == {row.__tablename__ for row in ROWS}


def test_the_key_of_a_step_is_the_one_of_the_wire() -> None:
    assert [column.name for column in table_of(StepRow).primary_key.columns] == ["trajectory_id", "epoch", "step_index"]
