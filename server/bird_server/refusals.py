"""Why something could not be done, as data: the errors of both rooms in one form, for lists and for commands."""

from __future__ import annotations

from dataclasses import dataclass

from bird_env.errors import BirdEnvError
from bird_snapshots.errors import SnapshotError


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
