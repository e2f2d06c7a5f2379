"""The scorer's one parent process: forks a child per scoring, keeps its clock, kills it at its limit, cleans up.

Started by exec and single-threaded, stdlib only, so that a fork copies no lock that a thread holds and no descriptor of
a replica. It reads orders from a socket and answers on it; the end of the socket, or SIGTERM, ends it with all that it
started. Frames to it: `ORDER`, then root and payload. Frames from it: a length, then JSON.

At its start it finds out with what a scoring can be shut in here (`namespaces`, `landlock`). Where the kernel does not
keep a scoring to its room on the disk, the zygote looks every now and then, and kills what has gone beyond.

A scoring has ended when its process is reaped, everything below it is killed (its process group, and what left the
group is adopted and killed too), and its directory is gone; only then is it answered.
"""

from __future__ import annotations

import contextlib
import gc
import json
import mmap
import os
import platform
import selectors
import shutil
import signal
import socket
import sqlite3
import struct
import sys
import time
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bird_server.scoring import child, footprint, landlock, namespaces, procfs, sandbox

#: kind, job, limit in seconds, bytes that may be held on the disk, bytes of the root path, bytes of the payload
ORDER = struct.Struct("!BQdQII")
SCORE, CANCEL = 1, 2
LENGTH = struct.Struct("!I")

#: Files and folders up to which a directory is removed between two events.
_SMALL_TREE = 64
#: Rounds of killing orphans that beget orphans before the next event is looked at.
_SWEEPS = 50
#: Seconds between two looks at what the watched scorings hold, and how much longer than a look the wait is at least.
_LOOK_S, _LOOK_SHARE = 0.25, 10


@dataclass(slots=True)
class Running:
    """One child, or what is left of it."""

    job: int
    pid: int
    root: str
    means: sandbox.Means
    report: mmap.mmap
    started: float
    deadline: float
    killed: str = ""
    status: int | None = None
    elapsed_ms: float = 0.0
    remover: int | None = None


class Zygote:
    """The loop.

    Args:
        means: By folder of private directories: with what a scoring is shut in there. Elsewhere with Landlock.
        clock: Gives seconds that only grow.
    """

    def __init__(
        self,
        control: socket.socket,
        means: Mapping[str, sandbox.Means],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._control = control
        self._means = means
        self._clock = clock
        self._next_look = clock()
        self._selector = selectors.DefaultSelector()
        self._inbox = bytearray()
        self._outbox = bytearray()
        self._running: dict[int, Running] = {}  # by pid of the child, or of its remover
        self._stopping = False
        self._oom_kills = procfs.oom_kills()
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wake = wake_read
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _heard)
        signal.signal(signal.SIGTERM, self._told_to_stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        control.setblocking(False)
        self._selector.register(control, selectors.EVENT_READ, self._on_control)
        self._selector.register(wake_read, selectors.EVENT_READ, self._on_wake)

    def run(self) -> None:
        """Serve until the socket ends."""
        versions = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
        shut_in = {
            "namespaces": all(means.namespaces for means in self._means.values()),
            "landlock": all(means.landlock for means in self._means.values()),
        }
        self._send({"type": "hello", "versions": versions, "shut_in": shut_in})
        while not self._stopping:
            for key, _ in self._selector.select(self._until_deadline()):
                key.data()
            self._reap()
            self._enforce_deadlines()
            self._enforce_room()
        self._end_all()

    # -- the socket ---------------------------------------------------------------------------------------------------

    def _on_control(self) -> None:
        try:
            data = self._control.recv(1 << 20)
        except BlockingIOError:
            data = None
        except OSError:
            data = b""
        if data == b"":
            self._stop()
            return
        if data:
            self._inbox += data
            self._take_orders()
        self._flush()

    def _take_orders(self) -> None:
        while len(self._inbox) >= ORDER.size:
            kind, job, limit_s, room, root_bytes, payload_bytes = ORDER.unpack_from(self._inbox)
            end = ORDER.size + root_bytes + payload_bytes
            if len(self._inbox) < end:
                return
            root = bytes(self._inbox[ORDER.size : ORDER.size + root_bytes])
            payload = bytes(self._inbox[ORDER.size + root_bytes : end])
            del self._inbox[:end]
            if kind == SCORE:
                self._start(job, limit_s, room, os.fsdecode(root), payload)
            else:
                self._cancel(job)

    def _send(self, message: dict[str, Any]) -> None:
        text = json.dumps(message).encode("ascii")
        self._outbox += LENGTH.pack(len(text)) + text
        self._flush()

    def _flush(self) -> None:
        try:
            while self._outbox:
                del self._outbox[: self._control.send(self._outbox)]
        except BlockingIOError:
            pass
        except OSError:
            self._stop()
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outbox else 0)
        self._selector.modify(self._control, wanted, self._on_control)

    def _told_to_stop(self, number: int, frame: object) -> None:
        self._stop()

    def _stop(self) -> None:
        self._stopping = True

    # -- children -----------------------------------------------------------------------------------------------------

    def _start(self, job: int, limit_s: float, room: int, root: str, payload: bytes) -> None:
        parent = os.getpid()
        known = self._means.get(str(Path(root).parent), sandbox.Means(False, True, False, 0))
        means = replace(known, room=room)
        try:
            report = child.new_report()
        except OSError as error:
            self._send({"type": "fault", "job": job, "message": f"no memory for the report: {error.strerror}"})
            return
        started = self._clock()
        try:
            pid = os.fork()
        except OSError as error:
            report.close()
            self._send({"type": "fault", "job": job, "message": f"fork failed: {error.strerror}"})
            return
        if pid == 0:
            for other in self._running.values():
                other.report.close()  # a scoring shares nothing with the one beside it
            child.main(payload, root, report, limit_s, parent, means)
        self._running[pid] = Running(job, pid, root, means, report, started, started + limit_s)

    def _cancel(self, job: int) -> None:
        for running in self._running.values():
            if running.job == job and running.status is None:
                self._kill(running, "cancelled")

    def _kill(self, running: Running, why: str) -> None:
        running.killed = running.killed or why
        for kill in (os.kill, os.killpg):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(running.pid, signal.SIGKILL)

    def _until_deadline(self) -> float | None:
        running = [running for running in self._running.values() if not running.killed]
        moments = [one.deadline for one in running]
        if any(not one.means.bounded for one in running):
            moments.append(self._next_look)
        return max(0.0, min(moments) - self._clock()) if moments else None

    def _enforce_deadlines(self) -> None:
        now = self._clock()
        for running in self._running.values():
            if running.status is None and not running.killed and now >= running.deadline:
                self._kill(running, "limit")

    def _enforce_room(self) -> None:
        now = self._clock()
        if now < self._next_look:
            return
        for running in self._running.values():
            if running.status is None and not running.killed and _beyond_its_room(running):
                self._kill(running, "room")
        looked = self._clock()
        self._next_look = looked + max(_LOOK_S, _LOOK_SHARE * (looked - now))

    def _on_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake, 4096):
                pass

    def _reap(self) -> None:
        for pid, running in list(self._running.items()):
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            if running.status is None:
                self._ended(running)
            else:
                os.waitpid(pid, 0)
                del self._running[pid]
                self._answer(running)

    def _ended(self, running: Running) -> None:
        """The child is a zombie: its group's id cannot be another's yet, so the group is killed before the reaping."""
        running.elapsed_ms = (self._clock() - running.started) * 1000
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(running.pid, signal.SIGKILL)
        _, running.status = os.waitpid(running.pid, 0)
        del self._running[running.pid]
        self._sweep_orphans()
        if not running.killed and _beyond_its_room(running):
            running.killed = "room"
        remover = remove_tree(running.root)
        if remover is None:
            self._answer(running)
        else:
            running.remover, running.killed = remover, running.killed or "-"
            self._running[remover] = running

    def _sweep_orphans(self) -> None:
        """Kill what outlived its scoring. A living child adopts its own orphans, so ours belong to ended ones."""
        for _ in range(_SWEEPS):
            orphans = [pid for pid in procfs.children() if pid not in self._running]
            if not orphans:
                return
            for pid in orphans:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for pid in orphans:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)

    def _answer(self, running: Running) -> None:
        status = running.status or 0
        code = os.waitstatus_to_exitcode(status)
        message: dict[str, Any] = {
            "type": "done",
            "job": running.job,
            "exit": code,
            "killed": "" if running.killed == "-" else running.killed,
            "elapsed_ms": running.elapsed_ms,
            "report": child.read_report(running.report),
        }
        running.report.close()
        if code == -signal.SIGKILL and message["killed"] == "" and self._memory_ran_out():
            message = {"type": "fault", "job": running.job, "message": "the machine ran out of memory"}
        self._send(message)

    def _memory_ran_out(self) -> bool:
        before, self._oom_kills = self._oom_kills, procfs.oom_kills()
        return self._oom_kills > before

    def _end_all(self) -> None:
        for running in self._running.values():
            if running.status is None:
                self._kill(running, "stopped")
        for pid, running in list(self._running.items()):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
            shutil.rmtree(running.root, ignore_errors=True)
        self._running.clear()
        self._sweep_orphans()


def _beyond_its_room(running: Running) -> bool:
    means, pid = running.means, running.pid if running.status is None else None
    return not means.bounded and footprint.exceeds(running.root, pid, means.room)


def _heard(number: int, frame: object) -> None:
    """A signal's only effect is a byte on the wake-up descriptor."""


def remove_tree(root: str) -> int | None:
    """Remove a scoring's directory: at once where it is small, else in a child whose pid is returned."""
    if not os.path.lexists(root):
        return None
    entries = 0
    for _, folders, files in os.walk(root):
        entries += len(folders) + len(files)
        if entries > _SMALL_TREE:
            break
    else:
        with contextlib.suppress(OSError):
            shutil.rmtree(root)
            return None
    pid = os.fork()
    if pid == 0:
        try:
            for folder, _, _ in os.walk(root):
                Path(folder).chmod(0o700)
            shutil.rmtree(root, ignore_errors=True)
        finally:
            os._exit(0)
    return pid


def find_means(roots: Iterable[str], without: Container[str]) -> dict[str, sandbox.Means]:
    """With what scorings below each of these folders can be shut in; `without` names what shall not be used."""
    has_landlock = "landlock" not in without and landlock.abi() >= landlock.MINIMUM_ABI
    found: dict[str, sandbox.Means] = {}
    for root in roots:
        in_memory = footprint.in_memory(root)
        has_namespaces = "namespaces" not in without and namespaces.available(root, in_memory=in_memory)
        found[root] = sandbox.Means(has_namespaces, has_landlock, in_memory, 0)
    return found


def main() -> None:
    """`python -m bird_server.scoring.zygote FD PARENT TIED WITHOUT ROOT…`.

    The socket's descriptor; the parent's pid; 1 where the parent's main thread has started us, whose end is the
    parent's, else 0; what a scoring is not to be shut in with, words with commas between; and the folders of the
    private directories, which go with the parent.
    """
    descriptor, parent, tied, without = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "1", sys.argv[4]
    roots = sys.argv[5:]
    sandbox.become_subreaper()
    control = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)
    zygote = Zygote(control, find_means(roots, without.split(",")))
    gc.collect()
    gc.freeze()  # a child's collections then leave our pages shared
    if tied:
        sandbox.die_with_parent(signal.SIGTERM, parent)
    zygote.run()
    if os.getppid() != parent:
        for root in roots:
            shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
