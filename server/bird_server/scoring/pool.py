"""The service's door to scoring: an asyncio pool over one zygote process.

At most `children` scorings run at once, the others wait in the order in which they came; waiting costs a scoring none
of its limit. A fault of the machinery (the zygote died, no room for a copy, fork failed) raises `ScorerError`, which is
retryable, and never becomes a verdict. A dead zygote is replaced; what ran in it raises. Cancelling `score` kills the
scoring. What it leaves out: what a verdict means for a reward, and which tasks can be scored at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import json
import logging
import marshal
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import bird_server
from bird_env.errors import ScorerFault
from bird_server.scoring import footprint, procfs
from bird_server.scoring.job import Ended, ScoringJob, ScoringResult, Verdict, failure_verdict, plain
from bird_server.scoring.workspace import TEMPORARY_NAME
from bird_server.scoring.zygote import CANCEL, LENGTH, ORDER, SCORE

log = logging.getLogger(__name__)

#: A fault of the machinery, retryable; the wire error of the same meaning.
ScorerError = ScorerFault

#: What a scoring can be shut in with.
Means = Literal["namespaces", "landlock"]

_PREFIX = "bird-scorer-"
#: Seconds for the zygote to say hello, or to go after it was told to.
_START_S, _STOP_S = 30.0, 10.0
#: What the zygote gets of the environment: neither secrets nor switches that change Python's meaning.
_ENVIRONMENT = ("PATH", "HOME", "LD_LIBRARY_PATH", "PYTHONPATH", "SYSTEMROOT")


@dataclass(frozen=True, slots=True)
class ScorerStatistics:
    """What the pool does at this moment, and has done."""

    running: int
    waiting: int
    done: int
    zygote_restarts: int


@dataclass(slots=True)
class _Zygote:
    process: subprocess.Popen[bytes]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    versions: dict[str, str]


def usable_cores() -> int:
    """Processors that this process may run on."""
    return len(os.sched_getaffinity(0))


class ScorerPool:
    """Scores solutions in child processes.

    Args:
        children: Scorings at once; by default one for each processor this process may use.
        scratch: Folder for the private copies; by default /dev/shm where there is room, else the temporary folder.
        without: Means of shutting a scoring in that are not used although the kernel has them, as on a machine that
            forbids them: "namespaces", "landlock".
    """

    def __init__(
        self,
        *,
        children: int | None = None,
        scratch: Path | None = None,
        without: frozenset[Means] = frozenset(),
    ) -> None:
        self._children = children if children is not None else usable_cores()
        if self._children < 1:
            raise ValueError("children must be at least 1")
        self._scratch = scratch
        self._without = without
        self._slots = asyncio.Semaphore(self._children)
        self._numbers = itertools.count(1)
        self._pending: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._zygote: _Zygote | None = None
        self._reader_task: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._roots: list[_ScratchRoot] = []
        self._stopped = True
        self._waiting = 0
        self._running = 0
        self._done = 0
        self._restarts = 0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def versions(self) -> dict[str, str]:
        """`python` and `sqlite` of the scoring processes; empty before the start."""
        return dict(self._zygote.versions) if self._zygote is not None else {}

    def statistics(self) -> ScorerStatistics:
        return ScorerStatistics(self._running, self._waiting, self._done, self._restarts)

    async def start(self) -> None:
        """Start the zygote. A second call does nothing.

        Raises:
            ScorerError: The zygote does not start; nothing is left behind.
        """
        self._stopped = False
        if not self._roots:
            self._roots = _scratch_roots(self._scratch)
        try:
            await self._ensure_zygote()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End the zygote with everything below it; running scorings raise. A second call does nothing."""
        self._stopped = True
        async with self._starting:
            zygote, task = self._zygote, self._reader_task
            self._zygote, self._reader_task = None, None
            if zygote is not None:
                await _end(zygote)
            if task is not None:
                await task
            for root in self._roots:
                root.remove()
            self._roots = []

    async def score(self, job: ScoringJob) -> ScoringResult:
        """Judge one solution.

        Raises:
            ScorerError: The machinery failed; nothing is known about the solution, and it may be tried again.
        """
        payload = _payload(job)
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        number = next(self._numbers)
        try:
            zygote = await self._ensure_zygote()
            root, room = self._choose_root(job.database)
            answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
            self._pending[number] = answer
        except BaseException:
            self._slots.release()
            raise
        self._running += 1
        answer.add_done_callback(lambda _: self._release(number))
        order = _order(SCORE, number, job.limit_s, room, os.fsencode(root), payload)
        try:
            zygote.writer.write(order)
            message = await asyncio.shield(answer)
        except asyncio.CancelledError:
            if not answer.done() and not zygote.writer.is_closing():
                zygote.writer.write(_order(CANCEL, number, 0.0, 0, b"", b""))
            answer.add_done_callback(_retrieve)
            raise
        self._done += 1
        return _result(job, message, zygote.versions)

    def _release(self, number: int) -> None:
        self._pending.pop(number, None)
        self._running -= 1
        self._slots.release()

    def _choose_root(self, database: Path) -> tuple[str, int]:
        """A private directory's name, and how much may be held there at once."""
        try:
            room = footprint.allowed_bytes(database.stat().st_size)
        except OSError as error:
            raise ScorerError(f"the database cannot be read: {error.strerror}") from error
        chosen = next((root for root in self._roots if root.free_bytes() >= room), self._roots[-1])
        return str(chosen.path / uuid.uuid4().hex), room

    # -- the zygote ---------------------------------------------------------------------------------------------------

    async def _ensure_zygote(self) -> _Zygote:
        async with self._starting:
            if self._stopped:
                raise ScorerError("the scorer is stopped")
            if self._zygote is None:
                self._zygote = await self._spawn()
                self._reader_task = asyncio.create_task(self._read(self._zygote), name="scorer-zygote")
            return self._zygote

    async def _spawn(self) -> _Zygote:
        ours, theirs = socket.socketpair()
        tied = threading.current_thread() is threading.main_thread()
        command = [sys.executable, "-P", "-m", "bird_server.scoring.zygote"]
        command += [
            str(theirs.fileno()),
            str(os.getpid()),
            str(int(tied)),
            ",".join(sorted(self._without)),
            *(str(root.path) for root in self._roots),
        ]
        locks = [root.lock for root in self._roots]
        try:
            process = subprocess.Popen(  # noqa: ASYNC220 - an exec of milliseconds, from this very thread on purpose:
                # the kernel's word that the parent has died comes when the starting thread ends.
                command,
                pass_fds=(theirs.fileno(), *locks),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=_environment(),
                start_new_session=True,
                cwd="/",
            )
        except OSError as error:
            ours.close()
            raise ScorerError(f"the scorer's process does not start: {error.strerror}") from error
        finally:
            theirs.close()
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        try:
            async with asyncio.timeout(_START_S):
                hello = await _receive(reader)
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError) as error:
            await _end(_Zygote(process, reader, writer, {}))
            raise ScorerError("the scorer's process ended before it was ready") from error
        if not all(hello["shut_in"].values()):
            log.warning("action=scorings_less_shut_in %s", " ".join(f"{k}={v}" for k, v in hello["shut_in"].items()))
        return _Zygote(process, reader, writer, hello["versions"])

    async def _read(self, zygote: _Zygote) -> None:
        cause: Exception | None = None
        try:
            while True:
                message = await _receive(zygote.reader)
                answer = self._pending.get(message["job"])
                if answer is not None and not answer.done():
                    answer.set_result(message)
        except Exception as error:  # noqa: BLE001 - end of the stream or nonsense on it: either way it is no use any more
            cause = error
        if self._zygote is zygote:
            log.error("action=zygote_lost pid=%d jobs=%d cause=%r", zygote.process.pid, len(self._pending), cause)
            self._restarts += 1
            await _end(zygote)
            for root in self._roots:
                root.clear()
            self._zygote = None
        lost = ScorerError("the scorer's process ended while it was scoring")
        for answer in list(self._pending.values()):
            if not answer.done():
                answer.set_exception(lost)
                answer.exception()  # looked at, should nobody wait for it any more


class _ScratchRoot:
    """A folder of ours for the private copies, held by a lock so that a later process can tell what was left behind."""

    def __init__(self, parent: Path) -> None:
        _sweep(parent)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        self.lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._in_memory = footprint.in_memory(str(self.path))

    def free_bytes(self) -> int:
        try:
            room = os.statvfs(self.path)
        except OSError:
            return 0
        free = room.f_bavail * room.f_frsize
        return min(free, procfs.available_memory()) if self._in_memory else free

    def clear(self) -> None:
        """Kill whoever still works below and remove what is there: the zygote that would have done it is dead."""
        for link in Path("/proc").glob("[0-9]*/cwd"):
            with contextlib.suppress(OSError):
                if self.path in link.readlink().parents:
                    os.kill(int(link.parent.name), signal.SIGKILL)
        for entry in self.path.iterdir():
            if entry.name != "lock":
                shutil.rmtree(entry, ignore_errors=True)

    def remove(self) -> None:
        if self.path.is_dir():
            self.clear()
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def _scratch_roots(scratch: Path | None) -> list[_ScratchRoot]:
    if scratch is not None:
        return [_ScratchRoot(scratch)]
    memory, temporary = Path("/dev/shm"), Path(tempfile.gettempdir())
    usable = memory.is_dir() and os.access(memory, os.W_OK | os.X_OK)
    return [_ScratchRoot(folder) for folder in ([memory, temporary] if usable else [temporary])]


def _sweep(parent: Path) -> None:
    """Remove the folders of processes that are gone: their locks can be taken."""
    for left in parent.glob(f"{_PREFIX}*"):
        try:
            lock = os.open(left / "lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        else:
            shutil.rmtree(left, ignore_errors=True)
        finally:
            os.close(lock)


def _environment() -> dict[str, str]:
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    ours = str(Path(bird_server.__file__).parents[1])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [ours, environment.get("PYTHONPATH")]))
    environment |= {"LANG": "C.UTF-8", "TZ": "UTC"}  # what 'localtime' means in SQL must not depend on the machine
    environment["SQLITE_TMPDIR"] = f"./{TEMPORARY_NAME}"  # read as the library starts: before a child has a directory
    return environment


def _payload(job: ScoringJob) -> bytes:
    return marshal.dumps(
        {
            "record": plain(job.record),
            "pred_sqls": plain(job.pred_sqls),
            "mode": job.mode,
            "database": str(job.database.absolute()),
        }
    )


def _order(kind: int, number: int, limit_s: float, room: int, root: bytes, payload: bytes) -> bytes:
    return ORDER.pack(kind, number, limit_s, room, len(root), len(payload)) + root + payload


async def _receive(reader: asyncio.StreamReader) -> dict[str, Any]:
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    message: dict[str, Any] = json.loads(await reader.readexactly(length))
    return message


async def _end(zygote: _Zygote) -> None:
    """Close the socket, which ends the zygote, and wait for it; killed when it does not go."""
    zygote.writer.close()
    with contextlib.suppress(ConnectionError):
        await zygote.writer.wait_closed()
    try:
        await asyncio.to_thread(zygote.process.wait, _STOP_S)
    except subprocess.TimeoutExpired:
        zygote.process.kill()
        await asyncio.to_thread(zygote.process.wait)


def _retrieve(answer: asyncio.Future[dict[str, Any]]) -> None:
    """Look at an answer that nobody waits for, so that its exception is not reported as forgotten."""
    if not answer.cancelled():
        answer.exception()


def _result(job: ScoringJob, message: dict[str, Any], versions: dict[str, str]) -> ScoringResult:
    if message["type"] == "fault":
        raise ScorerError(message["message"])
    report: dict[str, Any] = json.loads(message["report"]) if message["report"] is not None else {}
    if "fault" in report and message["killed"] != "room":
        raise ScorerError(report["fault"])
    if message["killed"] not in ("", "limit", "room"):
        raise ScorerError(f"the scoring was {message['killed']}")
    elapsed_ms: float = message["elapsed_ms"]
    if message["killed"] == "" and message["exit"] == 0 and "verdict" in report:
        verdict = Verdict(**report["verdict"])
        return ScoringResult(verdict, elapsed_ms, "completed", report["detail"], dict(versions))
    detail: dict[str, Any] = {"exit": message["exit"]}
    if message["killed"] == "room":
        detail["cause"] = "it has written more than a scoring may"
    verdict = failure_verdict(plain(job.record))
    ended: Ended = "killed_at_limit" if message["killed"] == "limit" else "died"
    return ScoringResult(verdict, elapsed_ms, ended, detail, dict(versions))
