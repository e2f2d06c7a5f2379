"""Everything that can go wrong in the storage engine, as one closed tree; a policy's failing SQL is not in it.

    SnapshotError
    ├── SourceError                 a file given to `publish` cannot become a template; nothing was published
    │   ├── SourceMissing               there is no such file
    │   ├── SourceUnreadable            a directory, a device, or a file that may not be read
    │   ├── NotADatabase                another format; the hint names it where its first bytes tell
    │   ├── EncryptedDatabase           looks like a database encrypted as a whole (SQLCipher, SEE)
    │   ├── TruncatedDatabase           shorter than its own header says
    │   ├── CorruptDatabase             SQLite's quick_check found damage; `messages` has its words
    │   └── SourceChanged               something wrote to it while it was read
    ├── StoreError                  the store, or the machine under it
    │   ├── StoreBusy                   owned by a living process; `pid` says which
    │   ├── StoreClosed                 used after `close`
    │   ├── TemplateMissing             no template has this digest
    │   ├── TemplateInUse               it cannot be removed while replicas of it exist
    │   ├── TemplateDamaged             its bytes are not the ones it was published with
    │   ├── StoreFull                   disk, quota of the disk, or descriptors are used up
    │   ├── CrossDevice                 templates and replicas lie on two mounts
    │   ├── TooManyLinks                the filesystem's links of one inode are used up, and another copy did not help
    │   ├── LinkRefused                 the filesystem, or the owner of the file, allows no hard link
    │   ├── SettingsDidNotHold          SQLite does not run as it was set to
    │   └── GuardFailed                 the template could have been written; the replica was not opened
    └── ReplicaError                one replica
        ├── ReplicaClosed               released, perhaps while it was executing
        ├── ReplicaBusy                 another thread is using it at this moment
        ├── UnknownPosition             its WAL holds no such committed state
        └── EngineFault                 SQLite failed in a way that no SQL of a policy should bring about

`code` is the contract; `hint` says what to do; `retryable` says whether the same call may succeed later unchanged.
"""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar


class SnapshotError(Exception):
    """Base of every error here. `str()` is what happened; it never holds rows of a database."""

    code: ClassVar[str] = "snapshot_error"
    retryable: ClassVar[bool] = False
    default_hint: ClassVar[str | None] = None

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint if hint is not None else self.default_hint


class SourceError(SnapshotError):
    """A file that cannot become a template. `path` is the file as it was given."""

    code = "source_error"

    def __init__(self, message: str, *, path: Path, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.path = path


class SourceMissing(SourceError):
    code = "source_missing"
    default_hint = "Check the path; the benchmark keeps databases as <db>/<db>_template.sqlite."


class SourceUnreadable(SourceError):
    code = "source_unreadable"
    default_hint = "Give a regular file that this user may read."


class NotADatabase(SourceError):
    code = "not_a_database"
    default_hint = "A SQLite 3 database begins with the 16 bytes 'SQLite format 3\\0'."


class EncryptedDatabase(SourceError):
    code = "encrypted_database"
    default_hint = "Decrypt it first, with the program and the key that it was encrypted with."


class TruncatedDatabase(SourceError):
    code = "truncated_database"
    default_hint = "Copy or download the file again: it is shorter than its header says."


class CorruptDatabase(SourceError):
    """`messages` are SQLite's own, at most 20."""

    code = "corrupt_database"
    default_hint = "Take a sound copy, or rescue what is left with the sqlite3 shell's `.recover`."

    def __init__(self, message: str, *, path: Path, messages: tuple[str, ...] = (), hint: str | None = None) -> None:
        super().__init__(message, path=path, hint=hint)
        self.messages = messages


class SourceChanged(SourceError):
    code = "source_changed"
    retryable = True
    default_hint = "Close the program that writes to it, or publish a copy made with `VACUUM INTO`."


class StoreError(SnapshotError):
    code = "store_error"


class StoreBusy(StoreError):
    code = "store_busy"
    retryable = True
    default_hint = "One process owns a store: end that one, or choose another directory."

    def __init__(self, message: str, *, pid: int | None = None) -> None:
        super().__init__(message)
        self.pid = pid


class StoreClosed(StoreError):
    code = "store_closed"


class TemplateMissing(StoreError):
    code = "template_missing"
    default_hint = "Publish the database again; `TemplateStore.list()` gives the templates that exist."


class TemplateInUse(StoreError):
    code = "template_in_use"
    retryable = True
    default_hint = "Release its replicas first."


class TemplateDamaged(StoreError):
    code = "template_damaged"
    default_hint = (
        "Remove it and publish the database again; then look for what wrote to the store, or for a failing disk."
    )


class StoreFull(StoreError):
    code = "store_full"
    retryable = True
    default_hint = "Free disk space, raise RLIMIT_NOFILE, or release replicas; `bird-env doctor` shows each."


class CrossDevice(StoreError):
    code = "cross_device"
    default_hint = "A store is one directory on one mount: two bind mounts of one filesystem will not do."


class TooManyLinks(StoreError):
    code = "too_many_links"
    retryable = True
    default_hint = "Release replicas of this template."


class LinkRefused(StoreError):
    code = "link_refused"
    default_hint = (
        "Use a filesystem with hard links (ext4, XFS, btrfs, tmpfs), and templates owned by this user; "
        "`bird-env doctor` tries both."
    )


class SettingsDidNotHold(StoreError):
    code = "settings_did_not_hold"
    default_hint = "This build of SQLite does not do what the engine needs; `bird-env doctor` shows its version."


class GuardFailed(StoreError):
    code = "guard_failed"
    default_hint = "The engine needs apsw with SQLite's own unix VFS on Linux; `bird-env doctor` tries the guard."


class ReplicaError(SnapshotError):
    code = "replica_error"


class ReplicaClosed(ReplicaError):
    code = "replica_closed"


class ReplicaBusy(ReplicaError):
    code = "replica_busy"
    default_hint = "A replica has one owner: serialise the calls to it."


class UnknownPosition(ReplicaError):
    code = "unknown_position"
    default_hint = "Branch from a position that this same generation has reported."


class EngineFault(ReplicaError):
    code = "engine_fault"
    retryable = True
    default_hint = "Release this replica and take another; if that fails too, verify the template."


#: What the operating system's refusals mean here. Anything else is an EngineFault: it was not foreseen.
_BY_ERRNO: dict[int, type[StoreError]] = {
    errno.ENOSPC: StoreFull,
    errno.EDQUOT: StoreFull,
    errno.EMFILE: StoreFull,
    errno.ENFILE: StoreFull,
    errno.ENOMEM: StoreFull,
    errno.EXDEV: CrossDevice,
    errno.EMLINK: TooManyLinks,
    errno.EPERM: LinkRefused,
    errno.EACCES: LinkRefused,
    errno.EROFS: LinkRefused,
    errno.EOPNOTSUPP: LinkRefused,
}


def from_oserror(error: OSError, doing: str) -> SnapshotError:
    """The error of this tree that a refusal of the operating system stands for.

    Args:
        error: What the operating system said.
        doing: What was being done, such as "linking a template": becomes part of the message.
    """
    found = _BY_ERRNO.get(error.errno or 0)
    reason = error.strerror or str(error)
    if found is None:
        return EngineFault(f"{doing}: {reason}")
    return found(f"{doing}: {reason}")


@contextmanager
def translated(doing: str) -> Generator[None]:
    """Turn an OSError inside the block into this tree; see `from_oserror`."""
    try:
        yield
    except OSError as error:
        raise from_oserror(error, doing) from error
