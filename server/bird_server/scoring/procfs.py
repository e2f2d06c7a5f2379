"""What the zygote asks /proc: its children, free memory, and whether the kernel has killed for want of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def children(pid: int | None = None) -> list[int]:
    """Pids of the direct children of a process; of this one by default. Zombies included."""
    me = os.getpid() if pid is None else pid
    try:
        text = Path(f"/proc/{me}/task/{me}/children").read_text(encoding="ascii")
    except OSError:  # it is gone, or a kernel without CONFIG_PROC_CHILDREN
        return children_by_scan(me)
    return [int(word) for word in text.split()]


def children_by_scan(parent: int) -> list[int]:
    """The same by reading every process's parent, which any kernel tells."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_bytes()
        except OSError:
            continue
        # the command's name stands in brackets and may hold anything; the fields after it are: state, parent, …
        if int(stat[stat.rindex(b")") + 1 :].split()[1]) == parent:
            found.append(int(entry.name))
    return found


def oom_kills() -> int:
    """How many processes the kernel has killed for want of memory since boot; 0 where it does not say."""
    try:
        text = Path("/proc/vmstat").read_text(encoding="ascii")
    except OSError:
        return 0
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill":
            return int(value)
    return 0


def available_memory() -> int:
    """Bytes that programs can still have without swapping; where the kernel does not say, more than any machine has."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return sys.maxsize
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return sys.maxsize
