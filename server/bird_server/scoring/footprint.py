"""How much one scoring has written, where it shares a disk with others: what the zygote watches.

Counted are the files below its directory and those that its processes hold open without a name, as SQLite's temporary
files are. A private tmpfs needs no watch, since the kernel keeps its size (`namespaces`).
"""

from __future__ import annotations

import ctypes
import os
import stat
from pathlib import Path

from bird_server.scoring import procfs

#: What a scoring may write besides its copies. The official run has no bound; an honest one comes nowhere near.
ALLOWANCE_BYTES = 1 << 30
#: Sizes of the database that it may write on top: its copies, a write-ahead log, what VACUUM makes.
_MULTIPLES = 6

_BLOCK = 512
#: The least that a file or a folder counts, so that many empty ones are not free.
_LEAST = 4096
_IN_MEMORY = frozenset({0x01021994, 0x858458F6})  # tmpfs, ramfs

_libc = ctypes.CDLL(None, use_errno=True)


def allowed_bytes(database_bytes: int) -> int:
    """What one scoring of a database of this size may hold on the disk at once, its copies included."""
    return ALLOWANCE_BYTES + _MULTIPLES * database_bytes


def in_memory(path: str) -> bool:
    """Whether a path lies in a file system that keeps its files in memory."""
    answer = (ctypes.c_long * 64)()
    return _libc.statfs(os.fsencode(path), answer) == 0 and answer[0] in _IN_MEMORY


def exceeds(root: str, pid: int | None, bound: int) -> bool:
    """Whether a scoring holds more than `bound` bytes.

    Args:
        root: Its private directory.
        pid: Its first process; None where that has ended.
    """
    held = 0
    folders = [root]
    while folders and held <= bound:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    held += _size(entry.stat(follow_symlinks=False))
                    if held > bound:
                        break
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except OSError:  # removed under us
            continue
    return held > bound or (pid is not None and held + _nameless(pid) > bound)


def _nameless(pid: int) -> int:
    found: dict[tuple[int, int], int] = {}
    processes = [pid]
    while processes:
        process = processes.pop()
        processes += procfs.children(process)
        try:
            for link in Path(f"/proc/{process}/fd").iterdir():
                status = link.stat()
                if status.st_nlink == 0 and stat.S_ISREG(status.st_mode):
                    found[status.st_dev, status.st_ino] = _size(status)
        except OSError:  # it has ended, or closed the file
            continue
    return sum(found.values())


def _size(status: os.stat_result) -> int:
    return max(status.st_blocks * _BLOCK, _LEAST)
