"""Bytes of a SQLite database header and of a WAL, read as they stand in sqlite.org/fileformat2.html.

Only what the engine needs: the header's sizes and counters, the WAL header, one frame header, and the running checksum
that proves a WAL. Nothing here opens a file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

MAGIC = b"SQLite format 3\0"
HEADER_BYTES = 100
WAL_HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
WAL_MAGIC = 0x377F0682  # its lowest bit says whether the checksums read words in big-endian order
WAL_VERSION = 3007000
WAL_FORMAT = 2  # bytes 18 and 19 of a database that is read and written through a WAL

_WAL_HEADER = struct.Struct(">8I")
_FRAME_HEADER = struct.Struct(">6I")


class FormatError(ValueError):
    """Bytes that are not what they should be."""


@dataclass(frozen=True, slots=True)
class DatabaseHeader:
    """The first 100 bytes of a database.

    Attributes:
        page_size: Bytes of a page, 512 to 65536.
        write_version, read_version: 1 for a rollback journal, 2 for a WAL.
        reserved: Bytes at the end of each page that belong to an extension.
        change_counter, valid_for: Only where they are equal does `page_count` mean anything.
        page_count: Pages of the database, or 0.
        library: SQLITE_VERSION_NUMBER of the library that wrote it last.
    """

    page_size: int
    write_version: int
    read_version: int
    reserved: int
    change_counter: int
    page_count: int
    valid_for: int
    library: int

    @property
    def counted_pages(self) -> int | None:
        """Pages that the file must have, where the header says so reliably."""
        return self.page_count if self.page_count and self.change_counter == self.valid_for else None


def parse_database_header(data: bytes) -> DatabaseHeader:
    """The header in the first bytes of a file.

    Raises:
        FormatError: Fewer than 100 bytes, another magic, or a page size that cannot be.
    """
    if len(data) < HEADER_BYTES or not data.startswith(MAGIC):
        raise FormatError("not a database header")
    (page_size,) = struct.unpack_from(">H", data, 16)
    page_size = 65536 if page_size == 1 else page_size
    if not 512 <= page_size <= 65536 or page_size & (page_size - 1):
        raise FormatError(f"a page cannot have {page_size} bytes")
    change_counter, page_count = struct.unpack_from(">II", data, 24)
    valid_for, library = struct.unpack_from(">II", data, 92)
    return DatabaseHeader(page_size, data[18], data[19], data[20], change_counter, page_count, valid_for, library)


def canonical_header(copied: bytes, source: bytes) -> bytes:
    """The header of a template: the copy's, with what copying changed put back and the WAL format set.

    The backup API counts a change and writes its own version; put back, publishing is a function of the content alone,
    and publishing a template again gives the same bytes.

    Args:
        copied: First 100 bytes of the copy that the backup API made.
        source: First 100 bytes of the database it was made from.
    """
    header = bytearray(copied[:HEADER_BYTES])
    header[18] = header[19] = WAL_FORMAT
    header[24:28] = source[24:28]  # change counter
    header[40:44] = source[40:44]  # schema cookie
    header[92:96] = source[24:28]  # the page count at 28 is the copy's own and right, so it is declared valid
    header[96:100] = source[96:100]  # version of the library that wrote it
    return bytes(header)


@dataclass(frozen=True, slots=True)
class WalHeader:
    """The first 32 bytes of a WAL. `checksum` runs over the 24 bytes before it and seeds the frames'."""

    page_size: int
    checkpoint: int
    salt: tuple[int, int]
    checksum: tuple[int, int]
    big_endian: bool


@dataclass(frozen=True, slots=True)
class FrameHeader:
    """The 24 bytes before a page in a WAL. `commit_pages` is the database's size in pages at a commit, else 0."""

    page_number: int
    commit_pages: int
    salt: tuple[int, int]
    checksum: tuple[int, int]


def checksum(data: bytes, seed: tuple[int, int] = (0, 0), *, big_endian: bool = False) -> tuple[int, int]:
    """SQLite's running WAL checksum over `data`, whose length is a multiple of 8 bytes.

    Raises:
        FormatError: The length is no multiple of 8.
    """
    if len(data) % 8:
        raise FormatError(f"{len(data)} bytes are no multiple of 8")
    first, second = seed
    words = struct.unpack(f"{'>' if big_endian else '<'}{len(data) // 4}I", data)
    for index in range(0, len(words), 2):
        first = (first + words[index] + second) & 0xFFFFFFFF
        second = (second + words[index + 1] + first) & 0xFFFFFFFF
    return first, second


def parse_wal_header(data: bytes) -> WalHeader:
    """The header at the start of a WAL.

    Raises:
        FormatError: Too short, another magic or version, or a checksum that does not fit.
    """
    if len(data) < WAL_HEADER_BYTES:
        raise FormatError("a WAL header has 32 bytes")
    magic, version, page_size, checkpoint, salt1, salt2, sum1, sum2 = _WAL_HEADER.unpack_from(data)
    if magic & ~1 != WAL_MAGIC or version != WAL_VERSION:
        raise FormatError("not a WAL header")
    big_endian = bool(magic & 1)
    if checksum(data[:24], big_endian=big_endian) != (sum1, sum2):
        raise FormatError("the WAL header's checksum does not fit")
    return WalHeader(65536 if page_size == 1 else page_size, checkpoint, (salt1, salt2), (sum1, sum2), big_endian)


def parse_frame_header(data: bytes) -> FrameHeader:
    """The header at the start of a frame.

    Raises:
        FormatError: Fewer than 24 bytes.
    """
    if len(data) < FRAME_HEADER_BYTES:
        raise FormatError("a frame header has 24 bytes")
    page_number, commit_pages, salt1, salt2, sum1, sum2 = _FRAME_HEADER.unpack_from(data)
    return FrameHeader(page_number, commit_pages, (salt1, salt2), (sum1, sum2))


def wal_bytes(frames: int, page_size: int) -> int:
    """Bytes of a WAL that hold this many frames; 0 for none, since then no header is needed either."""
    return WAL_HEADER_BYTES + frames * (FRAME_HEADER_BYTES + page_size) if frames else 0


def frame_offset(frame: int, page_size: int) -> int:
    """Where the header of a frame begins; frames count from 1."""
    return WAL_HEADER_BYTES + (frame - 1) * (FRAME_HEADER_BYTES + page_size)


def valid_frames(data: bytes) -> Iterator[FrameHeader]:
    """The frames of a whole WAL in order, up to the first that its checksum or salt disowns.

    Raises:
        FormatError: The WAL header itself is no good.
    """
    header = parse_wal_header(data)
    size, running, offset = FRAME_HEADER_BYTES + header.page_size, header.checksum, WAL_HEADER_BYTES
    while offset + size <= len(data):
        frame = parse_frame_header(data[offset : offset + FRAME_HEADER_BYTES])
        running = checksum(data[offset : offset + 8], running, big_endian=header.big_endian)
        running = checksum(data[offset + FRAME_HEADER_BYTES : offset + size], running, big_endian=header.big_endian)
        if frame.salt != header.salt or frame.checksum != running:
            return
        yield frame
        offset += size
