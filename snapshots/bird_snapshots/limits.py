"""What one call of `Replica.execute` may use, and what one replica may hold.

Times belong to one call, however many statements its text has. `wal_bytes` belongs to the replica: its WAL never
shrinks. Rows beyond `rows` or `result_bytes` are still read, counted and hashed, then dropped.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one call; the defaults are the service's.

    Attributes:
        cpu_s: Processor seconds of the executing thread; beyond them the outcome is `timeout`.
        wall_s: Seconds of the clock on the wall. Reached first, they mean that the thread was kept from running:
            the outcome is `starved`, the service's fault and never the policy's.
        rows: Rows of a result that are kept.
        result_bytes: Bytes of a result that are kept, about as JSON writes them: 8 for a number, for text its UTF-8
            with control characters, quotes and backslashes escaped, for a BLOB its base64.
        value_bytes: The longest text, BLOB or row that SQLite makes. Functions such as instr() cannot be interrupted,
            and their time grows with it.
        wal_bytes: Bytes that the replica may write in its life, and by which its database may grow.
        temp_bytes: Bytes in temporary files, TEMP tables and attached databases at one moment.
    """

    cpu_s: float = 30.0
    wall_s: float = 120.0
    rows: int = 1_000
    result_bytes: int = 2_000_000
    value_bytes: int = 1_000_000
    wal_bytes: int = 256_000_000
    temp_bytes: int = 512_000_000

    def __post_init__(self) -> None:
        for name in ("cpu_s", "wall_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)!r}")
        for name, least in (
            ("rows", 0),
            ("result_bytes", 0),
            ("value_bytes", 1_000),
            ("wal_bytes", 0),
            ("temp_bytes", 0),
        ):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)!r}")


DEFAULT_LIMITS = Limits()
