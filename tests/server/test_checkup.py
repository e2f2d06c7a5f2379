"""What the doctor finds: each check on what it is given, and the whole on this machine."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from bird_server import checkup
from bird_server.checkup import Finding, Mount, Status
from bird_server.datadir import DataDirectory
from bird_snapshots.errors import GuardFailed
from bird_snapshots.files import FileOps
from bird_snapshots.store import Store

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
30 22 0:25 / /dev/shm rw - tmpfs tmpfs rw
41 22 0:40 / /mnt/net rw - nfs4 server:/export rw
42 22 254:0 /data /mnt/with\\040space rw - ext4 /dev/vda rw
43 22 0:41 / /var/lib rw - overlay overlay rw
broken line
"""


def named(findings: list[Finding], name: str) -> Finding:
    (found,) = [finding for finding in findings if finding.name == name]
    return found


def test_a_healthy_place_is_well_and_left_as_it_was(tmp_path: Path) -> None:
    found = checkup.check_up(DataDirectory(tmp_path / "data"))
    assert found.ok, found
    assert named(found.findings, "replica").status is Status.OK
    assert found.needs is None
    assert list(tmp_path.iterdir()) == []
    assert set(found.versions) == {"bird_env", "python", "apsw", "engine_sqlite", "scorer_sqlite"}


@pytest.mark.parametrize(
    ("engine", "scorer", "expected"),
    [
        ("3.50.2", "3.50.2", (Status.OK, Status.OK)),
        ("3.54.1", "3.40.1", (Status.OK, Status.REMARK)),
        ("3.50.1", "3.54.0", (Status.ERROR, Status.OK)),
        ("3.9.2", "3.9.2", (Status.ERROR, Status.REMARK)),
    ],
)
def test_an_old_engine_is_an_error_an_old_scorer_a_remark(
    engine: str, scorer: str, expected: tuple[Status, Status]
) -> None:
    found = checkup.check_versions(engine, scorer)
    assert (named(found, "engine SQLite").status, named(found, "scorer SQLite").status) == expected
    assert all(finding.hint for finding in found if finding.status is not Status.OK)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/home/x", Mount("22", "/", "ext4")),
        ("/dev/shm/store", Mount("30", "/dev/shm", "tmpfs")),
        ("/dev/shmoo", Mount("22", "/", "ext4")),
        ("/mnt/net/a/b", Mount("41", "/mnt/net", "nfs4")),
        ("/mnt/with space/store", Mount("42", "/mnt/with space", "ext4")),
    ],
)
def test_the_mount_of_a_path(path: str, expected: Mount) -> None:
    assert checkup.mount_of(Path(path), MOUNTS) == expected


@pytest.mark.parametrize(
    ("filesystem", "status", "word"),
    [
        ("ext4", Status.OK, ""),
        ("xfs", Status.OK, ""),
        ("tmpfs", Status.REMARK, "memory"),
        ("nfs4", Status.REMARK, "network"),
        ("9p", Status.REMARK, "network"),
        ("overlay", Status.REMARK, "volume"),
    ],
)
def test_filesystems_are_named(tmp_path: Path, filesystem: str, status: Status, word: str) -> None:
    found = checkup.check_place(DataDirectory(tmp_path), tmp_path, Mount("1", "/x", filesystem))
    first = named(found, "data directory")
    assert first.status is status
    assert filesystem in first.value
    assert word in (first.hint or "").lower()


def test_two_mounts_in_one_store_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = DataDirectory(tmp_path)
    for name in ("templates", "replicas"):
        (data.store / name).mkdir(parents=True)
    monkeypatch.setattr(checkup, "mount_of", lambda path: Mount(path.name, str(path), "ext4"))
    found = checkup.check_place(data, tmp_path, Mount("1", "/", "ext4"))
    assert named(found, "one mount").status is Status.ERROR


def test_refused_links_and_a_failing_guard_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_self: FileOps, source: Path, _target: Path) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), str(source))

    with monkeypatch.context() as patch:
        patch.setattr(FileOps, "link", refuse)
        (finding,) = checkup.try_store(tmp_path)
    assert finding.status is Status.ERROR
    assert finding.value.startswith("link_refused")
    assert "hard links" in (finding.hint or "")

    def fail(*_arguments: object) -> None:
        raise GuardFailed("the main file is still writable")

    with monkeypatch.context() as patch:
        patch.setattr("bird_snapshots.connect._guard", fail)
        (finding,) = checkup.try_store(tmp_path)
    assert (finding.status, finding.value) == (Status.ERROR, "guard_failed: the main file is still writable")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    (finding,) = checkup.try_store(path)
    assert finding.status is Status.ERROR


def test_the_owner_of_a_store(tmp_path: Path) -> None:
    assert checkup.check_owner(tmp_path / "store").status is Status.OK
    with Store(tmp_path / "store"):
        finding = checkup.check_owner(tmp_path / "store")
        assert (finding.status, finding.value) == (Status.REMARK, f"process {os.getpid()}")
    assert checkup.check_owner(tmp_path / "store").status is Status.OK
    Store(tmp_path / "store").close()


@pytest.mark.parametrize(
    ("limit", "size", "status"),
    [
        (20_000, None, Status.OK),
        (1_024, None, Status.REMARK),
        (20_000, 9_900, Status.OK),
        (20_000, 9_901, Status.ERROR),
        (resource.RLIM_INFINITY, 1_000_000, Status.OK),
    ],
)
def test_descriptors(monkeypatch: pytest.MonkeyPatch, limit: int, size: int | None, status: Status) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (256, limit))
    assert checkup.check_descriptors(size).status is status


def test_memory_is_the_control_groups_where_that_is_less(tmp_path: Path) -> None:
    meminfo = "MemTotal: 9 kB\nMemAvailable:    2000 kB\n"
    (tmp_path / "max").write_text("max\n")
    (tmp_path / "less").write_text("1000\n")
    assert checkup.available_memory_bytes(meminfo, [tmp_path / "max", tmp_path / "missing"]) == 2_048_000
    assert checkup.available_memory_bytes(meminfo, [tmp_path / "less"]) == 1_000
    assert checkup.available_memory_bytes("", []) == 0


def test_what_many_replicas_take(tmp_path: Path) -> None:
    ext4 = checkup.compute_needs(130_000, 500_000_000, tmp_path, Mount("1", "/", "ext4"))
    assert (ext4.template_copies, ext4.links_per_copy, ext4.descriptors) == (3, 64_999, 260_200)
    assert ext4.copied_bytes == 65_000_000_000_000
    xfs = checkup.compute_needs(130_000, 500_000_000, tmp_path, Mount("1", "/", "xfs"))
    assert (xfs.template_copies, xfs.links_per_copy) == (1, None)
    tmpfs = checkup.compute_needs(1_000, 500_000_000, tmp_path, Mount("1", "/", "tmpfs"))
    assert tmpfs.memory_bytes == 1_000 * 195 * 1024 + tmpfs.disk_bytes
    huge = checkup.compute_needs(10**9, 500_000_000, tmp_path, Mount("1", "/", "xfs"))
    assert {finding.status for finding in checkup.check_needs(huge)} == {Status.ERROR}


def test_the_functions_of_the_two_libraries_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "engine_functions", lambda: frozenset({"abs"}))
    assert checkup.check_functions() == Finding(
        "SQL functions", Status.OK, "the scorer has every function of the engine"
    )
    monkeypatch.setattr(checkup, "engine_functions", lambda: frozenset({"abs", "from_the_future"}))
    assert "1 refused: from_the_future" in checkup.check_functions().value


@pytest.mark.parametrize(("zone", "status"), [("UTC", "ok"), ("Asia/Kolkata", "remark")])
def test_the_time_zone(zone: str, status: str) -> None:
    program = "from bird_server.checkup import check_timezone; print(check_timezone().status)"
    environment = {**os.environ, "TZ": zone if zone == "UTC" else "IST-5:30"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True, text=True)
    assert done.stdout.strip() == status


def test_little_disk_is_a_remark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checkup.check_disk(tmp_path).name == "disk"
    monkeypatch.setattr(checkup, "LITTLE_DISK_BYTES", 10**18)
    assert checkup.check_disk(tmp_path).status is Status.REMARK
