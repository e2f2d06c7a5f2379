"""Why something could not be done, as data: the errors of both rooms and of the machine in one form.

For lists (`databases import` names what it refused) and for commands (a line and exit code 2).
"""

from __future__ import annotations

import errno
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from bird_env.errors import BirdEnvError

if TYPE_CHECKING:
    from sqlalchemy.exc import OperationalError

    from bird_snapshots.errors import SnapshotError

_PERMISSION = "Give this user the right to use it, or name another path."
_HINTS = {
    errno.ENOENT: "Check the path; a folder in it does not exist and cannot be made.",
    errno.ENOTDIR: "Name a folder: this path, or one above it, is a file.",
    errno.EEXIST: "Name a folder: there is a file of this name.",
    errno.EISDIR: "Name a file: this is a folder.",
    errno.EACCES: _PERMISSION,
    errno.EPERM: _PERMISSION,
    errno.EROFS: "It lies on a filesystem that is mounted read-only: name another path.",
    errno.ENOSPC: "Free space on the disk, or name a path on another one.",
    errno.EDQUOT: "The quota of this user is used up: free space, or name a path on another disk.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
    errno.ELOOP: "Its symbolic links go round in a circle: name the folder itself.",
    errno.EMFILE: "Raise the limit of open files (`ulimit -n`); `bird-env doctor` shows it.",
    errno.ENFILE: "The machine has too many open files: end what holds them.",
}


@dataclass(frozen=True, slots=True)
class Refused:
    """`code` for programs, the rest for people."""

    code: str
    message: str
    hint: str | None

    def __str__(self) -> str:
        """One line: the message, and the hint behind it."""
        return f"{self.message.rstrip('.')}.{f' {self.hint}' if self.hint else ''}"


def why(error: BirdEnvError | SnapshotError) -> Refused:
    """What an error says."""
    message = error.detail if isinstance(error, BirdEnvError) else error.message
    return Refused(str(error.code), message, error.hint)


def why_not(error: OSError) -> Refused:
    """What the operating system says, about which path, and what to do about it. Its code is `os_error`."""
    path = error.filename if error.filename is not None else error.filename2
    path = os.fsdecode(path) if isinstance(path, bytes) else path
    said = error.strerror or str(error) or type(error).__name__
    message = said if path is None else f"{path} cannot be used: {said}"
    return Refused("os_error", message, _HINTS.get(error.errno or 0))


def refusal(error: Exception) -> Refused | None:
    """The same of any error that tells of the input or the machine; None of a defect, whose traceback is wanted."""
    if isinstance(error, BirdEnvError):
        return why(error)
    if isinstance(error, OSError):
        return why_not(error)
    if _is(error, "bird_snapshots.errors", "SnapshotError"):
        return why(cast("SnapshotError", error))
    if _is(error, "sqlalchemy.exc", "OperationalError"):
        reason = cast("OperationalError", error).orig
        hint = "Is the disk full, or the data directory not writable? If another import runs, wait for it."
        return Refused("catalogue_error", f"the catalogue cannot be used: {reason}", hint)
    return None


def _is(error: Exception, module: str, name: str) -> bool:
    """Whether it is of a class whose module is heavy: a command that does without it has none of its errors either."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(error, getattr(loaded, name))
