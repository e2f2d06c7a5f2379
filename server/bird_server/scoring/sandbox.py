"""What a scoring child gives up before it runs anything of a task: descriptors, signals, limits, its parent's life.

Linux calls through the stdlib; where the kernel lacks one the child goes on without it, as `docs/scoring.md` lists.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from pathlib import Path

from bird_server.scoring import landlock

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

#: Address space of a child. Lower, and a MemoryError would fail a test that passes officially.
ADDRESS_SPACE_BYTES = 8 << 30
#: Largest file that a child may write.
FILE_BYTES = 4 << 30
#: Processes and threads of the uid, a bound for fork bombs.
PROCESSES = 8_192

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> bool:
    """One `prctl(option, value)`; whether the kernel did it."""
    return bool(_libc.prctl(option, value, 0, 0, 0) == 0)


def die_with_parent(signal_number: int, parent: int) -> None:
    """Get a signal when the thread that started this process ends; at once if it already has."""
    prctl(_PR_SET_PDEATHSIG, signal_number)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal_number)


def become_subreaper() -> None:
    """Adopt orphans below this process, so that nothing escapes by a double fork."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def leave_parent_behind(parent: int, keep: int) -> None:
    """In a child just forked: own session, own signals, no descriptor but `keep`, standard streams on /dev/null."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    die_with_parent(signal.SIGKILL, parent)
    become_subreaper()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.closerange(3, keep)
    os.closerange(keep + 1, 1 << 20)


def shut_in(own: Path, source: Path) -> bool:
    """Leave only `own` to be written, and `source` out of reach; False where the kernel cannot or may not."""
    try:
        return landlock.restrict(own, source)
    except OSError:  # a container that offers Landlock and forbids it: the copy and the limits still stand
        return False


def limit_resources(limit_s: float) -> None:
    """Bounds behind the clock of the parent, far above what an honest test needs."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    cores = len(os.sched_getaffinity(0))
    for kind, bound in (
        (resource.RLIMIT_AS, ADDRESS_SPACE_BYTES),
        (resource.RLIMIT_CPU, int(limit_s * cores) + 20),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_NPROC, PROCESSES),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        wanted = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (wanted, wanted))
    with contextlib.suppress(OSError):  # if memory runs out, a scoring goes before the service
        score = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(score, b"1000")
        os.close(score)
