"""What of this machine the process may use: processor cores and memory, as its affinity and its cgroups say.

A container sees every core and all memory of its host; what it may use of them stands in files of its cgroup
(https://docs.kernel.org/admin-guide/cgroup-v2.html, and the older v1). The tightest of its ancestors counts.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")


def usable_cores(cgroups: Path = CGROUPS, own: Path = OWN_CGROUP) -> int:
    """Cores that threads of this process may run on at once, at least 1; a part of a core is none."""
    cores = len(os.sched_getaffinity(0))
    for folder in _folders(cgroups, own, "cpu"):
        quota, period = [*_words(folder / "cpu.max"), "", ""][:2]
        if not quota:
            quota, period = _word(folder / "cpu.cfs_quota_us"), _word(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period) > 0:  # "max" and -1 are no limit
            cores = min(cores, math.floor(int(quota) / int(period)))
    return max(1, cores)


def memory_bytes(cgroups: Path = CGROUPS, own: Path = OWN_CGROUP) -> int:
    """Bytes of memory that this process may use: the machine's, or less where a cgroup says so."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for folder in _folders(cgroups, own, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = _word(folder / name)
            if limit.isdigit():
                found = min(found, int(limit))
    return found


def _folders(cgroups: Path, own: Path, controller: str) -> Iterator[Path]:
    """The process's cgroup for a controller and its ancestors, as far as they can be seen from here."""
    yield cgroups
    yield cgroups / controller
    for line in _text(own).splitlines():
        _, controllers, path = [*line.split(":", 2), "", "", ""][:3]
        if controllers and controller not in controllers.split(","):
            continue
        folder = cgroups / controller if controllers else cgroups
        for part in Path(path).parts[1:]:
            folder = folder / part
            yield folder


def _word(path: Path) -> str:
    return next(iter(_words(path)), "")


def _words(path: Path) -> list[str]:
    return _text(path).split()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:  # this machine has no such controller, or does not show it
        return ""
