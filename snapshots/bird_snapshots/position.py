"""The name of a database's state in time: which replica, how many committed frames of its WAL, and their checksum.

Frames alone do not name a state: after a rewind another branch can reach the same length under the same salts. The
checksum of the last frame runs over every frame before it, so that two WALs with equal (frames, checksum) are equal.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Position:
    """A committed state of one replica.

    Attributes:
        generation: The replica, as 32 hexadecimal digits that were never used before.
        frames: Frames of its WAL up to and including the last commit; 0 is the template itself.
        checksum: The two words in the header of that last frame; None when `frames` is 0.
    """

    generation: str
    frames: int
    checksum: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.frames < 0 or (self.checksum is None) != (self.frames == 0):
            raise ValueError(f"not a position: {self.frames} frames, checksum {self.checksum}")
