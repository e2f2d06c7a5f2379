"""The file operations that the engine needs, behind one object so that tests can make any of them fail.

Whatever must appear whole is made under a temporary name, synced and renamed. Nothing here knows SQLite, but for one
fact: a file's `-wal`, `-journal` and `-shm` lie beside it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
from pathlib import Path

#: Files that SQLite keeps beside a database. The database itself goes last when a replica is removed, and comes last
#: when one is made: a half-made replica has no main file.
SIDECARS = ("-wal", "-journal", "-shm")

_CHUNK = 1 << 20


class FileOps:
    """The operating system's files. Every method raises the OSError that it met."""

    def link(self, source: Path, target: Path) -> None:
        """A second name for the same inode. Never a symbolic one: SQLite would put the WAL beside its end."""
        os.link(source, target, follow_symlinks=False)

    def unlink(self, path: Path) -> None:
        """Remove a name; one that is not there is as good as removed."""
        path.unlink(missing_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def mkdir(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and what is in it, or one file."""
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def names(self, directory: Path) -> list[str]:
        return sorted(path.name for path in directory.iterdir())

    def stat(self, path: Path) -> os.stat_result:
        return path.stat()

    def read(self, path: Path, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`; fewer at the end of the file."""
        with path.open("rb", buffering=0) as file:
            return os.pread(file.fileno(), length, offset)

    def write_at(self, path: Path, offset: int, data: bytes) -> None:
        """Overwrite bytes of a file that nobody else has yet."""
        with path.open("r+b", buffering=0) as file:
            if os.pwrite(file.fileno(), data, offset) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def copy(self, source: Path, target: Path, length: int | None = None) -> None:
        """A new file with the first `length` bytes of another, or all of them; shares extents where the disk can.

        Raises:
            OSError: ENODATA when the source is shorter than `length`.
        """
        with source.open("rb", buffering=0) as reader, target.open("xb", buffering=0) as writer:
            wanted = os.fstat(reader.fileno()).st_size if length is None else length
            copied = 0
            while copied < wanted:  # a call may copy less than it was asked to
                count = _copy_range(reader.fileno(), writer.fileno(), wanted - copied)
                if count == 0:
                    raise OSError(errno.ENODATA, f"ends after {copied} of {wanted} bytes", str(source))
                copied += count

    def sync(self, path: Path) -> None:
        """Force a file, or a directory's entries, to the disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sha256(self, path: Path) -> str:
        """The hash of a file's bytes, as 64 hexadecimal digits."""
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def free_bytes(self, path: Path) -> int:
        """Bytes that an unprivileged user can still write to the filesystem of `path`."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def lock(self, path: Path) -> int | None:
        """A descriptor that holds an exclusive lock on a file or directory, or None while another process holds it.

        The lock ends with the descriptor, hence with the process, however it dies.
        """
        directory = path.is_dir()
        flags = (os.O_RDONLY | os.O_DIRECTORY) if directory else (os.O_RDWR | os.O_CREAT)
        descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno == errno.EWOULDBLOCK:
                return None
            raise
        return descriptor


def _copy_range(reader: int, writer: int, count: int) -> int:
    try:
        return os.copy_file_range(reader, writer, min(count, 1 << 30))
    except OSError as error:  # between two filesystems, or on one that cannot
        if error.errno not in (errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
    data = os.read(reader, min(count, _CHUNK))
    written = 0
    while written < len(data):
        written += os.write(writer, data[written:])
    return len(data)


OS_FILES = FileOps()


def sidecar(path: Path, suffix: str) -> Path:
    """The file that SQLite keeps beside `path` under this suffix."""
    return path.with_name(path.name + suffix)
