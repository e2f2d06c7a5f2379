"""SQLite's memory: one limit for all connections of the process, so that a statement's memory never ends the process.

SQLite counts every byte it allocates (rows being made, sorts, caches, attached databases in memory) and refuses what
would pass its hard limit (https://sqlite.org/c3ref/hard_heap_limit64.html): the statement that asked fails with
SQLITE_NOMEM and is undone. The limit belongs to the process, not to a store: the first store sets it.

Whose fault that is, SQLite cannot say: it keeps no account of a statement. What a failed statement held is free again
when its failure is known. If little is in use then, it was its own doing; if the memory is still full, others hold it.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

import apsw

from bird_snapshots.errors import StoreFull
from bird_snapshots.machine import memory_bytes

#: The part of the machine's memory that SQLite may have, and what it needs at least.
SHARE = 4
LEAST_BYTES = 256_000_000

_guard = threading.Lock()


def limit_heap(heap_bytes: int | None) -> int:
    """Set the limit of the process; None sets a share of the machine's memory unless there is a limit already.

    Returns:
        The limit in bytes.
    """
    with _guard:
        found = apsw.hard_heap_limit(-1)
        if heap_bytes is None and found > 0:
            return found
        wanted = max(LEAST_BYTES, memory_bytes() // SHARE) if heap_bytes is None else heap_bytes
        if wanted <= 0:
            raise ValueError(f"heap_bytes must be positive, not {wanted}")
        apsw.hard_heap_limit(wanted)
        return wanted


def held_by_others(connection: apsw.Connection) -> bool:
    """Whether most of the memory is in use beyond what this connection's own databases hold."""
    most = apsw.hard_heap_limit(-1)
    own = connection.status(apsw.SQLITE_DBSTATUS_CACHE_USED)[0]
    return most > 0 and apsw.memory_used() - own > most // 2


def no_room(doing: str) -> StoreFull:
    """There is no memory, and that is nobody's SQL."""
    return StoreFull(
        f"{doing}: SQLite may have no more memory",
        hint="Repeat it; run fewer large statements at once, or allow SQLite more memory.",
    )


@contextmanager
def memory_for(doing: str) -> Generator[None]:
    """Turn SQLite's want of memory inside the block into StoreFull: what runs there is the engine's own."""
    try:
        yield
    except (apsw.NoMemError, MemoryError) as error:
        raise no_room(doing) from error
