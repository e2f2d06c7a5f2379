"""What a policy's SQL may not do to the plumbing under its replica, decided by SQLite's authorizer and never by text.

Everything about a database's content is allowed. Three kinds of things are not:

* PRAGMAs that reach the replica's files, or the process that it shares with others, are ignored: they succeed, change
  nothing and return no row. Their reading form still answers where it is harmless. (docs/storage.md lists them.)
* Files: ATTACH and VACUUM INTO of anything but ':memory:' and '' are refused, as are extensions.
* Functions that the scorer's SQLite does not have are refused, so that what a policy may use is what will be scored.

Names arrive as bytes: a schema may hold names that are not UTF-8. The decision also notes what each statement is about
to do, since SQLite's `changes()` alone does not tell an UPDATE of no row from a CREATE TABLE.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import apsw

#: PRAGMAs whose writing form does nothing. Reasons: the first group would write the template's inode or end the life of
#: the WAL (wal_checkpoint to mmap_size, temp_store); the second belongs to the whole process (heap limits, directories,
#: threads); the third lifts a limit (cache_size, cache_spill, max_page_count).
IGNORED = frozenset(
    (
        "wal_checkpoint",
        "wal_autocheckpoint",
        "locking_mode",
        "journal_mode",
        "journal_size_limit",
        "synchronous",
        "mmap_size",
        "temp_store",
        "hard_heap_limit",
        "soft_heap_limit",
        "temp_store_directory",
        "data_store_directory",
        "lock_proxy_file",
        "threads",
        "cache_size",
        "default_cache_size",
        "cache_spill",
        "max_page_count",
    )
)

#: Those whose reading form (no argument) answers.
READABLE = frozenset(
    (
        "wal_autocheckpoint",
        "locking_mode",
        "journal_mode",
        "journal_size_limit",
        "synchronous",
        "mmap_size",
        "temp_store",
        "threads",
        "cache_size",
        "cache_spill",
        "max_page_count",
    )
)

#: Refused under any name list: one loads code, the other tells and takes addresses of code.
FORBIDDEN_FUNCTIONS = frozenset((b"load_extension", b"fts3_tokenizer"))

#: Databases that ATTACH may name: private ones, in memory or in the store's temporary folder.
ATTACHABLE = frozenset((b"", b":memory:"))

_SCHEMA_TABLES = frozenset((b"sqlite_master", b"sqlite_schema", b"sqlite_temp_master", b"sqlite_temp_schema"))
_WRITES = frozenset((apsw.SQLITE_INSERT, apsw.SQLITE_UPDATE, apsw.SQLITE_DELETE))
_DEFINITIONS = frozenset(
    getattr(apsw, name)
    for name in dir(apsw)
    if name.startswith(("SQLITE_CREATE_", "SQLITE_DROP_"))
    or name in ("SQLITE_ALTER_TABLE", "SQLITE_REINDEX", "SQLITE_ANALYZE")
)
_IGNORED = frozenset(name.encode() for name in IGNORED)
_READABLE = frozenset(name.encode() for name in READABLE)


class Policy:
    """The authorizer of one replica, and its notes on the statement being prepared.

    Args:
        refused_functions: Lower-case names of SQL functions that are refused beyond FORBIDDEN_FUNCTIONS.
    """

    def __init__(self, refused_functions: frozenset[str] = frozenset()) -> None:
        self._refused = FORBIDDEN_FUNCTIONS | frozenset(name.encode() for name in refused_functions)
        self._trusted = False
        self.changes_rows = False
        self.defines = False
        self.writes_statistics = False
        self.asks_pragma = False
        self.functions = 0

    def begin(self) -> None:
        """Forget the notes on the statement before."""
        self.changes_rows = self.defines = self.writes_statistics = self.asks_pragma = False
        self.functions = 0

    @property
    def counts_changes(self) -> bool:
        """Whether the statement is one whose changed rows SQLite counts."""
        return self.changes_rows and not self.defines

    @property
    def edits_statistics(self) -> bool:
        """Whether the statement itself writes what ANALYZE would: it counts only from the next opening on."""
        return self.writes_statistics and not self.defines

    @contextmanager
    def trusted(self) -> Generator[None]:
        """Statements of the engine itself run inside the block: everything is allowed, nothing is noted."""
        self._trusted = True
        try:
            yield
        finally:
            self._trusted = False

    def decide(
        self, action: int, first: bytes | None, second: bytes | None, database: bytes | None, trigger: bytes | None
    ) -> int:
        """SQLITE_OK, SQLITE_DENY or SQLITE_IGNORE for one thing that a statement wants to do."""
        if self._trusted or action in (apsw.SQLITE_READ, apsw.SQLITE_SELECT):
            return apsw.SQLITE_OK
        if action == apsw.SQLITE_FUNCTION:
            self.functions += 1
            refused = second is not None and second.lower() in self._refused
            return apsw.SQLITE_DENY if refused else apsw.SQLITE_OK
        if action in _WRITES:
            self._note_write(first, trigger)
        elif action == apsw.SQLITE_PRAGMA:
            name = (first or b"").lower()
            if name in _IGNORED and not (second is None and name in _READABLE):
                return apsw.SQLITE_IGNORE
            self.asks_pragma = True
        elif action == apsw.SQLITE_ATTACH:
            # An expression arrives as None. VACUUM INTO asks with its path, plain VACUUM with ''.
            return apsw.SQLITE_OK if first in ATTACHABLE else apsw.SQLITE_DENY
        elif action in _DEFINITIONS:
            self.defines = True
        return apsw.SQLITE_OK

    def _note_write(self, table: bytes | None, trigger: bytes | None) -> None:
        name = (table or b"").lower()
        if name.startswith(b"sqlite_stat"):
            self.writes_statistics = True
        if trigger is None and name not in _SCHEMA_TABLES:
            self.changes_rows = True
