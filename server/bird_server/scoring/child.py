"""One scoring, in the process that the zygote forked for it: set up, judge, report, exit.

The report goes through a pipe behind a random token, so that what a test writes to descriptors is no report; where a
test has closed the pipe, it is left in a file of the private directory, under the token's name. The process then ends
as a Python program ends, waiting for threads and exit functions, since the official wrapper takes a verdict only from
an evaluation that exits with 0 in time. A process that a test has forked reports nothing.
"""

from __future__ import annotations

import atexit
import json
import marshal
import os
import struct
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

from bird_server.scoring import helpers, official, sandbox
from bird_server.scoring.workspace import PrivateWorkspace, WorkspaceError

LENGTH = struct.Struct("!I")


def main(payload: bytes, root: str, verdict_fd: int, token: bytes, limit_s: float, parent: int) -> NoReturn:
    """Run a scoring and exit; called right after the fork, and never returns to the zygote's loop."""
    code = 1
    try:
        sandbox.leave_parent_behind(parent, verdict_fd)
        code = _score(payload, root, verdict_fd, token, limit_s)
    finally:
        os._exit(code)


def _score(payload: bytes, root: str, verdict_fd: int, token: bytes, limit_s: float) -> int:
    me = os.getpid()
    try:
        job: dict[str, Any] = marshal.loads(payload)
        record: dict[str, Any] = job["record"]
        workspace = PrivateWorkspace(Path(root), _database_name(record), Path(job["database"]), copies=_copies(record))
        os.chdir(root)
        sandbox.limit_resources(limit_s)
        shut_in = sandbox.shut_in(Path(root), Path(job["database"]))
    except (WorkspaceError, OSError, MemoryError) as error:
        _report(verdict_fd, token, root, {"fault": str(error)})
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
        _report(verdict_fd, token, root, {"fault": "the scratch space is full"})
        return 0
    _report(verdict_fd, token, root, {"verdict": verdict.as_dict(), "detail": {**detail, "landlock": shut_in}})
    _end_as_python_does()
    return 0


def _database_name(record: dict[str, Any]) -> Any:
    return record["selected_database"] if "selected_database" in record else record.get("db_id", "unknown")


def _copies(record: dict[str, Any]) -> int:
    """Three where phase 1 runs: the first connection's file, the one that takes its place, and phase 2's."""
    busy = any(official.as_statements(record.get(key)) for key in ("preprocess_sql", "issue_sql"))
    return 3 if busy else 1


def _report(verdict_fd: int, token: bytes, root: str, report: dict[str, Any]) -> None:
    text = json.dumps(report).encode("ascii")
    frame = token + LENGTH.pack(len(text)) + text
    try:
        view = memoryview(frame)
        while view:
            view = view[os.write(verdict_fd, view) :]
    except OSError:  # a test has closed descriptors that were not its own
        Path(report_file(root, token)).write_bytes(frame)


def report_file(root: str, token: bytes) -> str:
    """Where a report is left that found its pipe closed."""
    return f"{root}/.report-{token.hex()}"


def _end_as_python_does() -> None:
    """Join threads that are no daemons, then run exit functions: a test may have left either behind."""
    for module, end in ((threading, "_shutdown"), (atexit, "_run_exitfuncs")):  # how the interpreter itself ends
        getattr(module, end)()
