"""How a scoring child ends: with a report, without one, and with things that a test has left running or closed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bird_server.scoring.child import REPORT_BYTES, new_report, read_report, write_report
from bird_server.scoring.job import ScoringJob, failure_verdict
from bird_server.scoring.pool import ScorerPool
from server.scoring.support import SHARED_LOOP, job

FORGERY = """
    import json, os
    for fd in range(3, 64):
        try:
            os.write(fd, json.dumps({"verdict": {"status": "success"}}).encode())
        except OSError:
            pass
    os._exit(0)
"""


@pytest.mark.parametrize(
    "body",
    [
        "import sys; sys.exit(0)",
        "import os; os._exit(0)",
        "raise KeyboardInterrupt",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        "import os; os.abort()",
        "import atexit, os; atexit.register(os._exit, 3)",
        FORGERY,
    ],
)
@SHARED_LOOP
async def test_a_test_that_ends_the_process_gets_the_failure_record(
    pool: ScorerPool, database: Path, body: str
) -> None:
    asked = job(database, body)
    result = await pool.score(asked)
    assert result.verdict == failure_verdict(asked.record)
    assert result.ended == "died"


@pytest.mark.parametrize(
    "body",
    [
        "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
        "import threading; threading.Thread(target=lambda: None).start()",
        "import os; os.closerange(0, 1 << 20)",
        "import os\nif os.fork() == 0: os._exit(7)",
        "import os; os.fork()",
        "import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'noise' * 1000)\n    except OSError: pass\n",
    ],
)
@SHARED_LOOP
async def test_a_verdict_survives_what_a_test_leaves_behind(pool: ScorerPool, database: Path, body: str) -> None:
    result = await pool.score(job(database, body))
    assert (result.verdict.status, result.ended) == ("success", "completed")


@SHARED_LOOP
async def test_large_verdicts_arrive_whole(pool: ScorerPool, database: Path) -> None:
    record = job(database).record | {"test_cases": "x" * 8_000}
    result = await pool.score(ScoringJob(record, ["SELECT 1"], database))
    assert result.verdict.failed_tests == [f"test_{number}" for number in range(1, 8_001)]


@SHARED_LOOP
async def test_detail_tells_the_statement_that_failed_and_is_no_part_of_the_verdict(
    pool: ScorerPool, database: Path
) -> None:
    result = await pool.score(job(database, pred=["SELECT nope"], issue_sql=["DROP TABLE nowhere"]))
    phases = result.detail["phases"]
    assert phases["prediction"]["statement_error"] == {
        "exception": "OperationalError",
        "message": "no such column: nope",
        "sqlite_code": "SQLITE_ERROR",
    }
    assert phases["issue"]["statement_error"]["message"] == "no such table: nowhere"
    assert "detail" not in result.verdict.as_dict()


@given(st.dictionaries(st.text(), st.text() | st.integers()))
@settings(max_examples=30, deadline=None)
def test_a_report_arrives_as_it_was_written(told: dict[str, Any]) -> None:
    with new_report() as report:
        assert read_report(report) is None
        write_report(report, told)
        text = read_report(report)
    assert text is not None
    assert json.loads(text) == told


def test_a_report_that_does_not_fit_is_none() -> None:
    with new_report() as report:
        write_report(report, {"x": "y" * REPORT_BYTES})
        assert read_report(report) is None


@pytest.mark.parametrize("length", [0, REPORT_BYTES, 2**64 - 1])
def test_a_length_that_cannot_be_is_no_report(length: int) -> None:
    with new_report() as report:
        report[:8] = length.to_bytes(8, sys.byteorder)
        assert read_report(report) is None
