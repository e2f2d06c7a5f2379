"""Whose fault a failure is."""

from __future__ import annotations

import errno
from pathlib import Path

import apsw
import pytest

from bird_snapshots.errors import EngineFault, ReplicaClosed, SnapshotError, StoreFull, TemplateDamaged
from bird_snapshots.failures import Outcome, SqlFailure, failure_of, invalid_text, missing_parameter
from bird_snapshots.gate import Gate
from bird_snapshots.meter import SYSTEM_CLOCK, Meter, Stop
from bird_snapshots.vfs import TemporaryFiles
from bird_snapshots.watchdog import Watchdog


@pytest.fixture
def meter(tmp_path: Path) -> Meter:
    account = TemporaryFiles(tmp_path)
    return Meter(
        tmp_path / "x-wal",
        account,
        SYSTEM_CLOCK,
        gate=Gate(1),
        watchdog=Watchdog(),
        committed_bytes=lambda: 0,
        free_bytes=lambda: 10**12,
    )


@pytest.fixture
def connection() -> apsw.Connection:
    return apsw.Connection(":memory:")


def made(code: int) -> apsw.Error:
    error = apsw.exception_for(code)
    assert isinstance(error, apsw.Error)
    setattr(error, "error_offset", -1)  # noqa: B010 - apsw sets it on what SQLite raises
    return error


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (apsw.SQLITE_ERROR, Outcome.SQL_ERROR),
        (apsw.SQLITE_CONSTRAINT_UNIQUE, Outcome.SQL_ERROR),
        (apsw.SQLITE_AUTH, Outcome.SQL_ERROR),
        (apsw.SQLITE_READONLY, Outcome.SQL_ERROR),
        (apsw.SQLITE_LOCKED, Outcome.SQL_ERROR),
        (apsw.SQLITE_CORRUPT_VTAB, Outcome.SQL_ERROR),
        (apsw.SQLITE_MISMATCH, Outcome.SQL_ERROR),
        (apsw.SQLITE_TOOBIG, Outcome.LIMIT),
        (apsw.SQLITE_NOMEM, Outcome.LIMIT),
        (apsw.SQLITE_FULL, StoreFull),
        (apsw.SQLITE_IOERR, EngineFault),
        (apsw.SQLITE_IOERR_WRITE, EngineFault),
        (apsw.SQLITE_IOERR_NOMEM, Outcome.LIMIT),
        (apsw.SQLITE_CANTOPEN, EngineFault),
        (apsw.SQLITE_CORRUPT, TemplateDamaged),
        (apsw.SQLITE_NOTADB, TemplateDamaged),
        (apsw.SQLITE_MISUSE, EngineFault),
        (apsw.SQLITE_INTERNAL, EngineFault),
        (apsw.SQLITE_INTERRUPT, EngineFault),
    ],
)
def test_each_code_has_its_place(
    connection: apsw.Connection, meter: Meter, code: int, expected: Outcome | type[SnapshotError]
) -> None:
    if isinstance(expected, Outcome):
        outcome, failure = failure_of(made(code), connection, meter, readonly=False)
        assert outcome is expected
        names = {**apsw.mapping_result_codes, **apsw.mapping_extended_result_codes}
        assert failure.sqlite_code == names[code]
    else:
        with pytest.raises(expected) as caught:
            failure_of(made(code), connection, meter, readonly=False)
        assert caught.value.retryable or expected is TemplateDamaged


@pytest.mark.parametrize(
    ("stop", "outcome"),
    [
        (Stop.CPU, Outcome.TIMEOUT),
        (Stop.WALL, Outcome.STARVED),
        (Stop.WAL, Outcome.QUOTA),
        (Stop.TEMPORARY, Outcome.QUOTA),
    ],
)
@pytest.mark.parametrize("code", [apsw.SQLITE_INTERRUPT, apsw.SQLITE_ERROR, apsw.SQLITE_ABORT])
def test_whatever_sqlite_says_the_meter_knows_better(
    connection: apsw.Connection, meter: Meter, stop: Stop, outcome: Outcome, code: int
) -> None:
    meter.stopped = stop
    found, failure = failure_of(made(code), connection, meter, readonly=False)
    assert found is outcome
    assert failure.hint


def test_a_release_is_no_failure_of_the_sql(connection: apsw.Connection, meter: Meter) -> None:
    meter.stopped = Stop.CLOSED
    with pytest.raises(ReplicaClosed):
        failure_of(made(apsw.SQLITE_INTERRUPT), connection, meter, readonly=True)


def test_full_is_the_sqls_only_where_rowids_can_run_out(connection: apsw.Connection, meter: Meter) -> None:
    connection.execute("CREATE TABLE k(id INTEGER PRIMARY KEY AUTOINCREMENT)")
    assert failure_of(made(apsw.SQLITE_FULL), connection, meter, readonly=False)[0] is Outcome.SQL_ERROR
    with pytest.raises(StoreFull):
        failure_of(made(apsw.SQLITE_FULL), connection, meter, readonly=True)
    meter.free_bytes = lambda: 1_000
    with pytest.raises(StoreFull):
        failure_of(made(apsw.SQLITE_FULL), connection, meter, readonly=False)


def test_places_count_characters_of_the_whole_text() -> None:
    failure = SqlFailure("m", offset=len("ä ".encode()))
    failure.locate("éé; ä x", 4, 1)
    assert (failure.offset, failure.statement_index) == (6, 1)
    nowhere = SqlFailure("m")
    nowhere.locate("x", 0, -1)
    assert (nowhere.offset, nowhere.statement_index, nowhere.hint) == (None, 0, None)


def test_texts_that_are_none() -> None:
    assert invalid_text("SELECT 'é\U0001f600'") is None
    nul = invalid_text("é\0")
    assert nul is not None
    nul.locate("é\0", 0, 0)
    assert nul.offset == 1
    lone = invalid_text("ab\ud800")
    assert lone is not None
    lone.locate("ab\ud800", 0, 0)
    assert lone.offset == 2
    assert "U+D800" in lone.message
    lone.message.encode()


def test_parameters_are_listed_once_and_not_without_end() -> None:
    assert missing_parameter(("?", "?")).message.endswith("parameter ?")
    assert missing_parameter(("?", "?", "?3", ":a")).message.endswith("parameter ?3, :a")
    assert len(missing_parameter(tuple(f":p{index}" for index in range(1_000))).message) < 200


def test_an_errno_behind_an_io_error_is_told(
    connection: apsw.Connection, meter: Meter, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        system_errno = errno.EDQUOT

    with pytest.raises(StoreFull, match="quota"):
        failure_of(made(apsw.SQLITE_IOERR_WRITE), Broken(), meter, readonly=False)  # type: ignore[arg-type]
