"""What a scoring child gives up before it runs anything of a task: descriptors, signals, limits, its parent's life.

Linux calls through the stdlib; where the kernel lacks one the child goes on without it, as `docs/scoring.md` lists.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import struct
from dataclasses import dataclass

from bird_server.scoring import landlock, namespaces

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

#: Address space of a child. Lower, and a MemoryError would fail a test that passes officially.
ADDRESS_SPACE_BYTES = 8 << 30
#: Processes and threads of the uid, a bound for fork bombs.
PROCESSES = 8_192

_CAPABILITIES_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Means:
    """What a scoring is shut in with.

    Args:
        namespaces: A view of the file system of its own.
        landlock: Landlock, where the kernel has it.
        in_memory: The private directory is in memory: with namespaces it is then a file system of its own.
        room: Bytes that the scoring may hold on the disk at once.
    """

    namespaces: bool
    landlock: bool
    in_memory: bool
    room: int

    @property
    def bounded(self) -> bool:
        """Whether the kernel keeps the scoring to its room; else somebody must watch it."""
        return self.namespaces and self.in_memory


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


def leave_parent_behind(parent: int) -> None:
    """In a child just forked: own session, own signals, no descriptor, standard streams on /dev/null."""
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
    os.closerange(3, 1 << 20)


def enter(root: str, means: Means) -> None:
    """Make `root` the working directory, in a view of the child's own where it shall have one.

    Raises:
        OSError: There is no such directory, or the kernel has no namespaces left.
    """
    if means.namespaces:
        namespaces.enter(root, memory_bytes=means.room if means.in_memory else None)
    else:
        os.chdir(root)


def shut_in(root: str, means: Means) -> str:
    """Leave only `root`, and temporary folders of the child's own, to be written; needs no-new-privileges.

    Returns:
        What holds, for operators: "namespaces, landlock" at best, "none" at worst.
    """
    held = ["namespaces"] if means.namespaces else []
    if means.landlock and _landlock((root, *namespaces.TEMPORARY) if means.namespaces else (root,)):
        held.append("landlock")
    elif means.namespaces:
        with contextlib.suppress(OSError):  # said by the level that comes back
            namespaces.make_elsewhere_read_only(root)
            held.append("read-only")
    _drop_capabilities()
    return ", ".join(held) or "none"


def _landlock(writable: tuple[str, ...]) -> bool:
    try:
        return landlock.restrict(writable)
    except OSError:  # a container that offers Landlock and forbids it: the copy and the limits still stand
        return False


def _drop_capabilities() -> None:
    """With them a child could take away the mounts that cover the machine's folders, or, as root, do much else."""
    header = struct.pack("=Ii", _CAPABILITIES_VERSION_3, 0)
    if _libc.capset(header, bytes(24)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"capabilities: {os.strerror(code)}")


def limit_resources(limit_s: float, file_bytes: int) -> None:
    """Bounds behind the clock of the parent, far above what an honest test needs."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    cores = len(os.sched_getaffinity(0))
    for kind, bound in (
        (resource.RLIMIT_AS, ADDRESS_SPACE_BYTES),
        (resource.RLIMIT_CPU, int(limit_s * cores) + 20),
        (resource.RLIMIT_FSIZE, file_bytes),
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
