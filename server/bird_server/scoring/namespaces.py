"""A view of the file system that one scoring has to itself, by Linux's user, mount and IPC namespaces.

Where the kernel lets a process have them, root or not, a scoring child sees empty temporary folders of its own in place
of the machine's, and its private directory under the path that the machine knows. All of it lies in one tmpfs with a
size, which goes with the child's last process; where the private directory is on a disk, below that directory instead.
So what a test or a statement writes to `/tmp` works, is seen by no other scoring and outlives nothing.

The child keeps its user and group ids, and must give its capabilities up afterwards (`sandbox`): with them it could
take the mounts away again. https://man7.org/linux/man-pages/man7/mount_namespaces.7.html says what stays locked then.
What it leaves out: reading and writing elsewhere (`landlock`), and processes, which stay visible.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

#: Folders that SQL and tests may name outright; a scoring has its own in their place.
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")

_NEW_MOUNTS, _NEW_IPC, _NEW_USER = 0x00020000, 0x08000000, 0x10000000
_READ_ONLY, _NO_SUID, _NO_DEVICES, _REMOUNT, _BIND = 1, 2, 4, 32, 4096
_RECURSIVE = 1 << 14
#: Flags of a mount that a remount must repeat: they have the same bits in statvfs.
_KEPT = _NO_SUID | _NO_DEVICES | 8 | 1024 | 2048
#: Files of a private tmpfs: each costs memory that its size does not count.
_FILES = 65_536
#: A mount point of the list is under another mount by now.
_COVERED = frozenset({errno.EINVAL, errno.ENOENT, errno.ENOTDIR, errno.EACCES})
_OCTAL = re.compile(r"\\([0-7]{3})")

_libc = ctypes.CDLL(None, use_errno=True)


def enter(root: str, *, memory_bytes: int | None) -> None:
    """Give this process, which must have one thread, a view of its own, with `root` as the working directory.

    Args:
        root: An empty directory.
        memory_bytes: The size of the private tmpfs; None leaves everything below `root` on the file system it is on.

    Raises:
        OSError: The kernel refuses. The process may be half way by then, and is good for nothing else.
    """
    user, group = os.getuid(), os.getgid()
    # In a user namespace no mount of the machine's is shared: what is mounted here stays here.
    _check(_libc.unshare(_NEW_USER | _NEW_MOUNTS | _NEW_IPC))
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        Path(f"/proc/self/{name}").write_bytes(text.encode())
    kept = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in python_in_temporary_folders()}
    if memory_bytes is not None:
        options = f"size={memory_bytes},nr_inodes={_FILES},mode=700"
        _mount("tmpfs", root, _NO_SUID | _NO_DEVICES, kind="tmpfs", options=options)
    os.chdir(root)  # what follows covers the path, not the working directory
    for number, folder in enumerate(TEMPORARY):
        if Path(folder).is_dir():
            Path(str(number)).mkdir()
            Path(str(number)).chmod(0o1777)
            _mount(str(number), folder, _BIND)
    Path("own").mkdir()
    for path, target in kept.items():
        _keep(path, target)
    Path(root).mkdir(parents=True, exist_ok=True)
    _mount("own", root, _BIND)
    os.chdir(root)


def make_elsewhere_read_only(root: str) -> None:
    """After `enter`: nothing but `root` and the temporary folders can be written, for kernels without Landlock.

    Raises:
        OSError: A mount stays writable.
    """
    writable = {os.path.realpath(path) for path in (root, *TEMPORARY)}
    for path in _mount_points():
        if path in writable:
            continue
        try:
            _make_read_only(path)
        except OSError as error:
            if path == "/" or error.errno not in _COVERED:
                raise


def available(parent: str, *, in_memory: bool) -> bool:
    """Whether children may have all this below `parent`: tried, by a process of its own, since half of it may be."""
    python_in_temporary_folders()
    root = tempfile.mkdtemp(prefix="probe-", dir=parent)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            enter(root, memory_bytes=1 << 20 if in_memory else None)
            for folder in (".", *filter(os.path.isdir, TEMPORARY)):
                Path(folder, "probe").touch()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    shutil.rmtree(root, ignore_errors=True)
    return status == 0


@functools.cache
def python_in_temporary_folders() -> frozenset[str]:
    """What this interpreter still has to read although it lies in a folder that is about to be covered.

    Found once in a process and its forks: asking for each scoring would cost it a millisecond.
    """
    named = {os.path.abspath(path) for path in (*sys.path, sys.prefix, sys.base_prefix) if path}  # noqa: PTH100 - links stay
    both = named | {os.path.realpath(path) for path in named}
    covered = (path for path in both if any(_is_below(path, folder) for folder in TEMPORARY))
    return frozenset(path for path in covered if Path(path).exists())


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(f"{folder}/")


def _keep(path: str, target: int) -> None:
    """Show what was at a path there again, to be read."""
    where = Path(path)
    if os.path.isdir(f"/proc/self/fd/{target}"):  # noqa: PTH112 - a path of the kernel's
        where.mkdir(parents=True, exist_ok=True)
    else:
        where.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # it is in a folder that is there again already
            where.touch()
    _mount(f"/proc/self/fd/{target}", path, _BIND | _RECURSIVE)
    os.close(target)
    _make_read_only(path)


def _make_read_only(path: str) -> None:
    flags = os.statvfs(path).f_flag & _KEPT
    _mount("none", path, _REMOUNT | _BIND | _READ_ONLY | flags)


def _mount_points() -> list[str]:
    lines = Path("/proc/self/mountinfo").read_bytes().decode("utf-8", "surrogateescape").splitlines()
    return [_OCTAL.sub(lambda found: chr(int(found[1], 8)), line.split(" ")[4]) for line in lines]


def _mount(source: str, target: str, flags: int, *, kind: str = "none", options: str = "") -> None:
    arguments = (os.fsencode(source), os.fsencode(target), kind.encode("ascii"))
    _check(_libc.mount(*arguments, ctypes.c_ulong(flags), options.encode("ascii")))


def _check(result: int) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"namespaces: {os.strerror(code)}")
