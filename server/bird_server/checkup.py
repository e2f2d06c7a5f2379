"""What would go wrong on this machine, found by trying it: versions, limits, and the filesystem of a data directory.

Each check gives findings: `ok`, `remark` (works, but know this) or `error` (will not work, with how to mend it). A
store is really made beside the data directory's own, a template published, linked, opened under the guard, written to
and verified; nothing is left of it. What many replicas would take is computed from measured figures (docs/storage.md).

Left out: whether a server answers (`bird-env serve`, `/readyz`), and whether templates are whole (`databases verify`).
"""

from __future__ import annotations

import math
import os
import platform
import re
import resource
import shutil
import sqlite3
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path

from bird_server.datadir import DataDirectory
from bird_snapshots.errors import SnapshotError
from bird_snapshots.files import OS_FILES
from bird_snapshots.store import Store, engine_functions
from bird_snapshots.versions import sqlite_version

#: SQL with too many aggregate terms could corrupt the memory of older libraries (CVE-2025-6965).
SAFE_SQLITE = (3, 50, 2)

DESCRIPTORS_EACH = 2  # a replica's main file and its WAL
DESCRIPTORS_BESIDE = 200  # sockets, scorers, the ledger, temporary files
MEMORY_EACH_KIB = 195  # after a small transaction; 185 idle
DISK_EACH_BYTES = 45_000  # after changes to ten pages; 0 before the first change
LINKS_OF_EXT4 = 65_000
LITTLE_DISK_BYTES = 1_000_000_000

#: Filesystems and what to know of them.
NETWORK_FILESYSTEMS = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs", "fuse.s3fs", "virtiofs")
)
MEMORY_FILESYSTEMS = frozenset(("tmpfs", "ramfs"))
LAYERED_FILESYSTEMS = frozenset(("overlay", "overlayfs", "aufs", "fuse.fuse-overlayfs"))


class Status(StrEnum):
    OK = "ok"
    REMARK = "remark"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `value` is what was found, `hint` what it means and how to mend it."""

    name: str
    status: Status
    value: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Needs:
    """What a number of live replicas of one template takes, and what is there. Memory and disk in bytes."""

    replicas: int
    template_bytes: int
    descriptors: int
    descriptors_available: int
    memory_bytes: int
    memory_available_bytes: int
    disk_bytes: int
    disk_available_bytes: int
    links_per_copy: int | None
    template_copies: int
    copied_bytes: int


@dataclass(frozen=True, slots=True)
class Checkup:
    """Everything that was found."""

    findings: list[Finding]
    versions: dict[str, str]
    needs: Needs | None = field(default=None)

    @property
    def ok(self) -> bool:
        """Whether nothing was found that will not work."""
        return all(finding.status is not Status.ERROR for finding in self.findings)


@dataclass(frozen=True, slots=True)
class Mount:
    """The mount that a path lies on. `id` differs between two mounts of one filesystem."""

    id: str
    point: str
    filesystem: str


def check_up(data: DataDirectory, *, size: int | None = None, template_mb: float = 500.0) -> Checkup:
    """Look at everything.

    Args:
        data: The data directory; it need not exist yet.
        size: How many live replicas are wanted; None: only what every server needs.
        template_mb: Size of the template that they are of, in megabytes.
    """
    place = existing(data.store)
    mount = mount_of(place)
    findings = [
        *check_versions(sqlite_version(), sqlite3.sqlite_version),
        check_functions(),
        *check_place(data, place, mount),
        *try_store(place),
        check_owner(data.store),
        check_descriptors(size),
        check_disk(place),
        check_memory(),
        check_processors(),
        check_timezone(),
    ]
    needs = None
    if size is not None:
        needs = compute_needs(size, int(template_mb * 1_000_000), place, mount)
        findings.extend(check_needs(needs))
    return Checkup(findings, versions(), needs)


def versions() -> dict[str, str]:
    """Versions of what a verdict depends on."""
    return {
        "bird_env": version("bird-env"),
        "python": platform.python_version(),
        "apsw": version("apsw"),
        "engine_sqlite": sqlite_version(),
        "scorer_sqlite": sqlite3.sqlite_version,
    }


def check_versions(engine: str, scorer: str) -> list[Finding]:
    """The two SQLite libraries: the engine's must be safe for anybody's SQL, the scorer's is the evaluator's."""
    safe = ".".join(map(str, SAFE_SQLITE))
    old_engine = _numbers(engine) < SAFE_SQLITE
    found = [
        Finding("python", Status.OK, platform.python_version()),
        Finding("bird_env", Status.OK, f"{version('bird-env')}, apsw {version('apsw')}"),
        Finding(
            "engine SQLite",
            Status.ERROR if old_engine else Status.OK,
            engine,
            f"Older than {safe}, it has CVE-2025-6965: pip install --upgrade apsw" if old_engine else None,
        ),
    ]
    if _numbers(scorer) < SAFE_SQLITE:
        hint = (
            f"Older than {safe} (CVE-2025-6965). It is this Python's own library, the evaluator's too; each scoring"
            " runs in a child process of its own."
        )
        found.append(Finding("scorer SQLite", Status.REMARK, scorer, hint))
    else:
        found.append(Finding("scorer SQLite", Status.OK, scorer))
    return found


def check_functions() -> Finding:
    """SQL functions that policies are refused because the scorer's library does not have them."""
    connection = sqlite3.connect(":memory:")
    try:
        scorer = {str(name).lower() for (name,) in connection.execute("SELECT name FROM pragma_function_list")}
    finally:
        connection.close()
    refused = sorted(name for name in engine_functions() - scorer if name.isidentifier())
    if not refused:
        return Finding("SQL functions", Status.OK, "the scorer has every function of the engine")
    value = f"{len(refused)} refused: {', '.join(refused[:6])}{', …' if len(refused) > 6 else ''}"
    return Finding("SQL functions", Status.OK, value, "The scorer's SQLite lacks them; `engine_functions` decides.")


def existing(path: Path) -> Path:
    """The path itself, or the nearest folder above it that exists."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def mount_of(path: Path, table: str | None = None) -> Mount:
    """The mount of a path, from the kernel's table (/proc/self/mountinfo; see proc_pid_mountinfo(5))."""
    if table is None:
        table = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    wanted, best = path.resolve(), Mount("?", "", "unknown")
    for line in table.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(" "), right.split(" ")
        if len(fields) < 5 or not kind[0]:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
        if wanted.is_relative_to(point) and len(point) >= len(best.point):
            best = Mount(fields[0], point, kind[0])
    return best


def check_place(data: DataDirectory, place: Path, mount: Mount) -> list[Finding]:
    """Where the store lies: one mount, with hard links, that survives what it should survive."""
    where = f"{data.root.absolute()} on {mount.filesystem} at {mount.point}"
    kind = mount.filesystem
    if kind in NETWORK_FILESYSTEMS:
        hint = (
            "A network filesystem: its locks and links may fail under load, and every commit waits. Use a local disk."
        )
        found = [Finding("data directory", Status.REMARK, where, hint)]
    elif kind in MEMORY_FILESYSTEMS:
        hint = "In memory: fastest, but everything written counts as memory, and a reboot takes all of it."
        found = [Finding("data directory", Status.REMARK, where, hint)]
    elif kind in LAYERED_FILESYSTEMS:
        hint = "A container's own layer: it ends with the container. Mount one volume for the data directory."
        found = [Finding("data directory", Status.REMARK, where, hint)]
    else:
        found = [Finding("data directory", Status.OK, where)]
    parts = {name: mount_of(folder) for name in ("templates", "replicas") if (folder := data.store / name).is_dir()}
    if len({part.id for part in parts.values()}) > 1:
        listed = ", ".join(f"{name} at {part.point}" for name, part in parts.items())
        hint = "Hard links do not cross mounts, not even two of one filesystem: put the whole store on one."
        found.append(Finding("one mount", Status.ERROR, listed, hint))
    if not os.access(place, os.W_OK | os.X_OK):
        hint = f"Give user {os.geteuid()} the right to write there."
        found.append(Finding("writable", Status.ERROR, str(place), hint))
    return found


def try_store(place: Path) -> list[Finding]:
    """Make a store, a template and a replica at a place, write to the replica, and prove the template untouched."""
    folder = place / f".bird-env-doctor-{uuid.uuid4().hex}"
    start = time.perf_counter()
    try:
        folder.mkdir()
        source = folder / "empty.db"
        source.touch()
        with Store(folder / "store") as store:
            template = store.templates.publish(source)
            replica = store.acquire(template.digest)
            result = replica.execute("CREATE TABLE t(a); INSERT INTO t VALUES (1); SELECT a FROM t")
            branch = replica.branch()
            rows = branch.execute("SELECT a FROM t").rows
            branch.release()
            replica.release()
            store.templates.verify(template.digest)
        if result.rows != [(1,)] or rows != [(1,)]:
            return [Finding("replica", Status.ERROR, f"it answered {result.rows} and {rows}", "Report this machine.")]
    except SnapshotError as error:
        return [Finding("replica", Status.ERROR, f"{error.code}: {error}", error.hint)]
    except OSError as error:
        return [Finding("replica", Status.ERROR, f"{error.strerror}: {place}", "Choose another data directory.")]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    took = (time.perf_counter() - start) * 1e3
    return [
        Finding("replica", Status.OK, f"published, linked, guarded, written, branched and removed in {took:.0f} ms")
    ]


def check_owner(store: Path) -> Finding:
    """Whether a living process owns the store."""
    path = store / "owner.lock"
    if not path.is_file():
        return Finding("owner", Status.OK, "no server runs on this data directory")
    try:
        lock = OS_FILES.lock(path)
    except OSError as error:
        hint = "The server must run as the user that owns the data directory."
        return Finding("owner", Status.ERROR, f"{path}: {error.strerror}", hint)
    if lock is None:
        pid = path.read_text(encoding="ascii", errors="replace").strip()
        return Finding(
            "owner", Status.REMARK, f"process {pid}", "A server is running; a second one needs another directory."
        )
    os.close(lock)
    return Finding("owner", Status.OK, "no server runs on this data directory")


def check_descriptors(size: int | None) -> Finding:
    """Open files: `bird-env serve` raises the soft limit to the hard one, so the hard one counts."""
    available = descriptor_limit()
    most = max(0, (available - DESCRIPTORS_BESIDE) // DESCRIPTORS_EACH)
    value = f"{available:,} allowed, enough for {most:,} live replicas"
    if size is not None and most < size:
        hint = (
            f"{size:,} replicas take {DESCRIPTORS_EACH * size + DESCRIPTORS_BESIDE:,}: `ulimit -Hn`, or LimitNOFILE=."
        )
        return Finding("open files", Status.ERROR, value, hint)
    if most < 1_024:
        hint = (
            "Few for training: raise it with `ulimit -Hn` as root, LimitNOFILE= (systemd) or --ulimit nofile= (Docker)."
        )
        return Finding("open files", Status.REMARK, value, hint)
    return Finding("open files", Status.OK, value)


def descriptor_limit() -> int:
    """Open files that a server of ours may have: the hard limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return 1 << 30 if hard == resource.RLIM_INFINITY else hard


def check_disk(place: Path) -> Finding:
    free = shutil.disk_usage(place).free
    value = f"{free / 1e9:,.1f} GB free"
    if free < LITTLE_DISK_BYTES:
        hint = "Little: a trajectory may write 256 MB, and a full disk fails every step."
        return Finding("disk", Status.REMARK, value, hint)
    return Finding("disk", Status.OK, value)


def available_memory_bytes(meminfo: str | None = None, limits: Iterable[Path] | None = None) -> int:
    """Bytes that may still be used: what the kernel has, or less where a control group allows less."""
    if meminfo is None:
        meminfo = Path("/proc/meminfo").read_text(encoding="ascii")
    match = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.MULTILINE)
    available = int(match[1]) * 1024 if match else 0
    for path in limits if limits is not None else (Path("/sys/fs/cgroup/memory.max"),):
        try:
            text = path.read_text(encoding="ascii").strip()
        except OSError:  # no control group of version 2 here
            continue
        if text.isdigit():
            available = min(available, int(text))
    return available


def check_memory() -> Finding:
    available = available_memory_bytes()
    most = available // (MEMORY_EACH_KIB * 1024)
    return Finding("memory", Status.OK, f"{available / 1e9:,.1f} GB available, enough for {most:,} live replicas")


def check_processors() -> Finding:
    usable, present = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    if usable < present:
        return Finding("processors", Status.OK, f"{usable} of {present} may be used")
    return Finding("processors", Status.OK, str(usable))


def check_timezone() -> Finding:
    """`'localtime'` in SQL depends on the process: it must be the same wherever a result is compared."""
    offset, name = time.localtime().tm_gmtoff, time.tzname[0]
    if offset == 0:
        return Finding("time zone", Status.OK, name)
    hint = "datetime('now', 'localtime') depends on it: run the server with TZ=UTC, as the evaluator's container does."
    return Finding("time zone", Status.REMARK, f"{name}, {offset / 3600:+g} h", hint)


def compute_needs(replicas: int, template_bytes: int, place: Path, mount: Mount) -> Needs:
    """What so many live replicas of one template of this size take, after a few changes each."""
    links = LINKS_OF_EXT4 - 1 if mount.filesystem == "ext4" else None
    copies = max(1, math.ceil(replicas / links)) if links else 1
    in_memory = mount.filesystem in MEMORY_FILESYSTEMS
    disk = copies * template_bytes + replicas * DISK_EACH_BYTES
    return Needs(
        replicas=replicas,
        template_bytes=template_bytes,
        descriptors=DESCRIPTORS_EACH * replicas + DESCRIPTORS_BESIDE,
        descriptors_available=descriptor_limit(),
        memory_bytes=replicas * MEMORY_EACH_KIB * 1024 + (disk if in_memory else 0),
        memory_available_bytes=available_memory_bytes(),
        disk_bytes=disk,
        disk_available_bytes=shutil.disk_usage(place).free,
        links_per_copy=links,
        template_copies=copies,
        copied_bytes=template_bytes * replicas,
    )


def check_needs(needs: Needs) -> list[Finding]:
    """Where this machine is too small for what is wanted. Descriptors have a finding of their own."""
    found: list[Finding] = []
    for name, needed, available, hint in (
        ("memory wanted", needs.memory_bytes, needs.memory_available_bytes, "Hold fewer live replicas, or add memory."),
        ("disk wanted", needs.disk_bytes, needs.disk_available_bytes, "Choose a larger volume for the data directory."),
    ):
        status = Status.ERROR if needed > available else Status.OK
        value = f"{needed / 1e9:,.2f} GB of {available / 1e9:,.2f} GB"
        found.append(Finding(name, status, value, hint if status is Status.ERROR else None))
    return found


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])
