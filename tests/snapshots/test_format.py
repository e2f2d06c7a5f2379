"""Bytes of headers and WALs, against files that SQLite itself wrote."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bird_snapshots.files import sidecar
from bird_snapshots.format import (
    FormatError,
    canonical_header,
    checksum,
    frame_offset,
    parse_database_header,
    parse_frame_header,
    parse_wal_header,
    valid_frames,
    wal_bytes,
)


def written_wal(path: Path, page_size: int, commits: list[int]) -> tuple[bytes, bytes, list[int]]:
    """A database and the WAL that stock SQLite writes for some commits; the WAL's size after each."""
    sizes: list[int] = []
    for suffix in ("", "-wal", "-shm"):
        sidecar(path, suffix).unlink(missing_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {page_size}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("CREATE TABLE t(a, b)")
        for count in commits:
            connection.execute("BEGIN")
            connection.executemany(
                "INSERT INTO t VALUES (?, ?)", [(index, "x" * (index % 300)) for index in range(count)]
            )
            connection.execute("COMMIT")
            sizes.append(sidecar(path, "-wal").stat().st_size)
        return path.read_bytes(), sidecar(path, "-wal").read_bytes(), sizes


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    page_size=st.sampled_from([512, 1024, 4096, 65536]), commits=st.lists(st.integers(1, 60), min_size=1, max_size=6)
)
def test_every_frame_of_a_wal_is_valid(tmp_path: Path, page_size: int, commits: list[int]) -> None:
    _, wal, sizes = written_wal(tmp_path / "w.db", page_size, commits)
    header = parse_wal_header(wal)
    assert header.page_size == page_size
    frames = list(valid_frames(wal))
    assert wal_bytes(len(frames), page_size) == len(wal)
    ends = [wal_bytes(index + 1, page_size) for index, frame in enumerate(frames) if frame.commit_pages]
    assert ends[-len(sizes) :] == sizes
    last = parse_frame_header(wal[frame_offset(len(frames), page_size) :])
    assert last == frames[-1]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_one_flipped_bit_ends_a_wal(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "w.db"
    _, wal, _ = written_wal(path, 1024, [5, 50])
    whole = len(list(valid_frames(wal)))
    place = data.draw(st.integers(0, len(wal) - 1))
    damaged = bytearray(wal)
    damaged[place] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = list(valid_frames(bytes(damaged)))
    except FormatError:
        assert place < 32
    else:
        assert len(found) == max(0, (place - 32) // (24 + 1024)) < whole


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 40_000))
def test_a_torn_wal_ends_before_the_tear(tmp_path: Path, cut: int) -> None:
    _, wal, _ = written_wal(tmp_path / "w.db", 1024, [5, 50, 5])
    if cut < 32:
        with pytest.raises(FormatError):
            list(valid_frames(wal[:cut]))
    else:
        assert len(list(valid_frames(wal[:cut]))) == (min(cut, len(wal)) - 32) // (24 + 1024)


@given(first=st.binary(max_size=160), second=st.binary(max_size=160), big_endian=st.booleans())
def test_the_checksum_runs_on(first: bytes, second: bytes, big_endian: bool) -> None:
    first, second = first[: len(first) // 8 * 8], second[: len(second) // 8 * 8]
    together = checksum(first + second, big_endian=big_endian)
    assert checksum(second, checksum(first, big_endian=big_endian), big_endian=big_endian) == together


def test_bytes_that_are_none_are_refused() -> None:
    for wrong in (
        b"",
        b"SQLite format 3\0",
        b"x" * 100,
        b"SQLite format 3\0" + b"\0" * 84,
        b"SQLite format 3\0\x03\0" + b"\0" * 82,
    ):
        with pytest.raises(FormatError):
            parse_database_header(wrong)
    with pytest.raises(FormatError):
        parse_frame_header(b"short")
    with pytest.raises(FormatError):
        parse_wal_header(b"\0" * 32)
    with pytest.raises(FormatError):
        checksum(b"1234567")
    assert wal_bytes(0, 4096) == 0


@pytest.mark.parametrize("page_size", [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536])
def test_database_headers(tmp_path: Path, page_size: int) -> None:
    database, _, _ = written_wal(tmp_path / "w.db", page_size, [1])
    header = parse_database_header(database)
    assert (header.page_size, header.write_version, header.read_version) == (page_size, 2, 2)
    assert header.counted_pages is not None
    assert header.counted_pages * page_size == len(database)


def test_the_canonical_header_is_a_function_of_the_source() -> None:
    source = bytearray(range(100))
    copied = bytearray(200 - byte for byte in range(100))
    header = canonical_header(bytes(copied), bytes(source))
    assert canonical_header(header, header) == header, "done twice it changes nothing"
    assert header[18:20] == b"\x02\x02"
    assert header[24:28] == header[92:96] == source[24:28]
    changed = {index for index in range(100) if header[index] != copied[index]}
    assert changed <= {18, 19, *range(24, 28), *range(40, 44), *range(92, 100)}
