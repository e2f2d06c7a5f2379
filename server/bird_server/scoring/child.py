"""One scoring, in the process that the zygote forked for it: set up, judge, report, exit.

The report goes into memory that the zygote shares with this one child, so that nothing a test writes to descriptors or
closes can be taken for it or lose it. The process then ends as a Python program ends, waiting for threads and exit
functions, since the official wrapper takes a verdict only from an evaluation that exits with 0 in time. A process that
a test has forked reports nothing.

Statements have no way to the report. A test has: it is Python in the process that judges, as in the official run, and
part of the task like its gold. Nothing here is meant to hold against a task that wants a wrong verdict.
"""

from __future__ import annotations

import atexit
import json
import marshal
import mmap
import os
import struct
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

from bird_server.scoring import helpers, official, sandbox
from bird_server.scoring.sandbox import Means
from bird_server.scoring.workspace import PrivateWorkspace, WorkspaceError, open_source

#: Address space for a report; memory only as far as it is written.
REPORT_BYTES = 64 << 20
_LENGTH = struct.Struct("=Q")


def main(payload: bytes, root: str, report: mmap.mmap, limit_s: float, parent: int, means: Means) -> NoReturn:
    """Run a scoring and exit; called right after the fork, and never returns to the zygote's loop."""
    code = 1
    try:
        sandbox.leave_parent_behind(parent)
        code = _score(payload, root, report, limit_s, means)
    finally:
        os._exit(code)


def new_report() -> mmap.mmap:
    """Memory for one child's report, to be made before the fork.

    Raises:
        OSError: There is none.
    """
    return mmap.mmap(-1, REPORT_BYTES)


def read_report(report: mmap.mmap) -> str | None:
    """What the child has reported, JSON; None where it has not, or not to the end."""
    (length,) = _LENGTH.unpack_from(report)
    if not 0 < length <= REPORT_BYTES - _LENGTH.size:
        return None
    return report[_LENGTH.size : _LENGTH.size + length].decode("ascii", "replace")


def write_report(report: mmap.mmap, told: dict[str, Any]) -> None:
    """Report; one that is too large is none.

    Raises:
        RecursionError, TypeError, ValueError: A test has put something into it that is no JSON.
    """
    text = json.dumps(told).encode("ascii")
    if len(text) <= REPORT_BYTES - _LENGTH.size:
        report[_LENGTH.size : _LENGTH.size + len(text)] = text
        _LENGTH.pack_into(report, 0, len(text))


def _score(payload: bytes, root: str, report: mmap.mmap, limit_s: float, means: Means) -> int:
    me = os.getpid()
    try:
        job: dict[str, Any] = marshal.loads(payload)
        record: dict[str, Any] = job["record"]
        source = open_source(Path(job["database"]))
        Path(root).mkdir()
        sandbox.enter(root, means)
        name, copies = _database_name(record), _copies(record)
        workspace = PrivateWorkspace(Path(root), name, source, copies=copies, shared_disk=not means.bounded)
        sandbox.limit_resources(limit_s, means.room)
        isolation = sandbox.shut_in(root, means)
    except (WorkspaceError, OSError, MemoryError) as error:
        write_report(report, {"fault": str(error)})
        return 0
    os.environ.update(
        EPHEMERAL_DB_PATH=workspace.db_path, TMPDIR=str(workspace.temporary), SQLITE_TMPDIR=str(workspace.temporary)
    )
    sys.modules["sqlite_test_utils"] = helpers
    helpers.watch = workspace.observe
    verdict, detail = official.run(record, job["pred_sqls"], job["mode"], workspace)
    if os.getpid() != me:
        return 0
    if workspace.starved:
        write_report(report, {"fault": "the scratch space is full"})
        return 0
    write_report(report, {"verdict": verdict.as_dict(), "detail": {**detail, "isolation": isolation}})
    _end_as_python_does()
    return 0


def _database_name(record: dict[str, Any]) -> Any:
    return record["selected_database"] if "selected_database" in record else record.get("db_id", "unknown")


def _copies(record: dict[str, Any]) -> int:
    """Three where phase 1 runs: the first connection's file, the one that takes its place, and phase 2's."""
    busy = any(official.as_statements(record.get(key)) for key in ("preprocess_sql", "issue_sql"))
    return 3 if busy else 1


def _end_as_python_does() -> None:
    """Join threads that are no daemons, then run exit functions: a test may have left either behind."""
    for module, end in ((threading, "_shutdown"), (atexit, "_run_exitfuncs")):  # how the interpreter itself ends
        getattr(module, end)()
