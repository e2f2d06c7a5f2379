"""What the tests of scoring share: a database, jobs around a test function, and a look at processes and files."""

from __future__ import annotations

import asyncio
import hashlib
import os
import select
import sqlite3
import textwrap
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bird_server.scoring import procfs
from bird_server.scoring.job import Mode, ScoringJob, ScoringResult

#: Far beyond what anything here takes; a test that needs it has failed.
PATIENCE_S = 30.0

FOREVER = "while True: pass"
#: For tests that use the pool of their module.
SHARED_LOOP = pytest.mark.asyncio(loop_scope="module")

SIGNATURE = "def test_case(pred_sqls, sol_sqls, db_path, conn, conditions):"


def make_database(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE t(a INTEGER); INSERT INTO t VALUES (1), (2), (3);")
    return path


def job(
    database: Path,
    body: str = "pass",
    *,
    pred: Any = ("SELECT 1",),
    limit_s: float = 60.0,
    mode: Mode = "pred",
    **record: Any,
) -> ScoringJob:
    """A job of one test function with this body."""
    source = f"{SIGNATURE}\n{textwrap.indent(textwrap.dedent(body), '    ')}\n"
    base: dict[str, Any] = {"db_id": "db", "preprocess_sql": [], "sol_sql": ["SELECT 1"], "test_cases": [source]}
    return ScoringJob({**base, **record}, list(pred), database, mode, limit_s)


def message(result: ScoringResult) -> str:
    """The message of the one test's exception: how a test function here tells what it saw."""
    told: str = result.detail["phases"]["prediction"]["tests"][0]["message"]
    return told


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def left_in(scratch: Path) -> list[Path]:
    """What scorings have left in a scratch folder."""
    return [path for path in scratch.glob("*/*") if path.name != "lock"]


def entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def is_there(path: str) -> bool:
    return os.path.lexists(path)


def zygote_pid() -> int:
    """The zygote that this process has started."""
    found = [pid for pid in procfs.children() if b"bird_server.scoring.zygote" in _command_line(pid)]
    assert len(found) == 1
    return found[0]


def _command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


async def started_child(zygote: int) -> int:
    """The pid of the scoring that the zygote is about to start."""
    while not (children := procfs.children(zygote)):
        await asyncio.to_thread(os.sched_yield)
    return children[0]


def wait_gone(pid: int) -> None:
    """Wait until a process is no more; it may be nobody's child here."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ready, _, _ = select.select([descriptor], [], [], PATIENCE_S)
        assert ready, f"process {pid} is still there"
    finally:
        os.close(descriptor)
