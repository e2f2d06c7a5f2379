"""File operations on real files."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest

from bird_snapshots import files
from bird_snapshots.files import OS_FILES, sidecar
from bird_snapshots.testing import FaultyFiles


@pytest.mark.parametrize("shared_extents", [True, False])
@pytest.mark.parametrize("length", [0, 1, 4096, 3_000_001, None])
def test_copies_whole_or_a_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared_extents: bool, length: int | None
) -> None:
    def unsupported(*_arguments: object) -> int:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    if not shared_extents:
        monkeypatch.setattr(os, "copy_file_range", unsupported)
    data = hashlib.shake_256(b"x").digest(3_000_001)
    (tmp_path / "a").write_bytes(data)
    OS_FILES.copy(tmp_path / "a", tmp_path / "b", length)
    assert (tmp_path / "b").read_bytes() == data[:length]


def test_a_copy_may_come_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = os.copy_file_range
    monkeypatch.setattr(
        os, "copy_file_range", lambda reader, writer, count: original(reader, writer, min(count, 1_000))
    )
    (tmp_path / "a").write_bytes(bytes(range(256)) * 20)
    OS_FILES.copy(tmp_path / "a", tmp_path / "b", 5_001)
    assert (tmp_path / "b").read_bytes() == (bytes(range(256)) * 20)[:5_001]


def test_a_source_that_is_too_short_and_a_target_that_exists(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"short")
    with pytest.raises(OSError, match="ends after 5 of 6 bytes"):
        OS_FILES.copy(tmp_path / "a", tmp_path / "b", 6)
    with pytest.raises(FileExistsError):
        OS_FILES.copy(tmp_path / "a", tmp_path / "b")


def test_an_error_other_than_unsupported_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "copy_file_range", full)
    (tmp_path / "a").write_bytes(b"data")
    with pytest.raises(OSError, match="No space left"):
        OS_FILES.copy(tmp_path / "a", tmp_path / "b")


def test_locks_exclude_and_end_with_their_descriptor(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "file"):
        first = OS_FILES.lock(path)
        assert first is not None
        assert OS_FILES.lock(path) is None
        assert not os.get_inheritable(first)
        os.close(first)
        again = OS_FILES.lock(path)
        assert again is not None
        os.close(again)


def test_small_ones(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(b"0123456789")
    assert OS_FILES.read(path, 4, 3) == b"456"
    assert OS_FILES.read(path, 8, 9) == b"89"
    OS_FILES.write_at(path, 2, b"ab")
    assert path.read_bytes() == b"01ab456789"
    assert OS_FILES.sha256(path) == hashlib.sha256(b"01ab456789").hexdigest()
    OS_FILES.sync(path)
    OS_FILES.sync(tmp_path)
    assert OS_FILES.free_bytes(tmp_path) > 0
    assert sidecar(path, "-wal") == tmp_path / "x.db-wal"
    OS_FILES.mkdir(tmp_path / "d" / "e")
    (tmp_path / "link").symlink_to(tmp_path / "d")
    OS_FILES.remove_tree(tmp_path / "link")
    OS_FILES.remove_tree(tmp_path / "d")
    OS_FILES.unlink(path)
    OS_FILES.unlink(path)
    assert OS_FILES.names(tmp_path) == []


def test_every_operation_can_be_made_to_fail(tmp_path: Path) -> None:
    operations = {name for name in vars(files.FileOps) if not name.startswith("_")}
    assert operations == {name for name in vars(FaultyFiles) if not name.startswith("_")}
    faulty = FaultyFiles("sync", errno.EIO, at=2)
    faulty.sync(tmp_path)
    with pytest.raises(OSError, match="Input/output error"):
        faulty.sync(tmp_path)
    faulty.sync(tmp_path)
    assert faulty.calls["sync"] == 3
