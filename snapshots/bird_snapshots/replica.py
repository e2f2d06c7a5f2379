"""A replica: a hard link to an immutable template and a private WAL; one writable database with one owner.

One primitive makes every replica: a copy of a WAL's committed frames, or none, is put beside a new link under a name
that was never used. Acquire is a branch of nothing, reset a branch back to nothing. Nothing truncates or rewrites a
WAL in place and nothing cleans a connection in place: TEMP objects, PRAGMAs and counters end with their generation.

Any thread may call, one at a time: a second one at the same time gets `ReplicaBusy`, never an interleaving. Only
`release` waits: it ends the statement that is running and then the replica.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bird_snapshots import vfs
from bird_snapshots.connect import Opened, has_temporary_database, open_replica
from bird_snapshots.errors import ReplicaBusy, ReplicaClosed, UnknownPosition, translated
from bird_snapshots.execution import Execution, Runner
from bird_snapshots.failures import Outcome
from bird_snapshots.files import FileOps, sidecar
from bird_snapshots.format import FRAME_HEADER_BYTES, FrameHeader, frame_offset, parse_frame_header, wal_bytes
from bird_snapshots.gate import Gate
from bird_snapshots.heap import memory_for
from bird_snapshots.limits import DEFAULT_LIMITS, Limits
from bird_snapshots.meter import Clock, Meter
from bird_snapshots.policy import Policy
from bird_snapshots.position import Position
from bird_snapshots.sql import query
from bird_snapshots.watchdog import Watchdog

_NOTHING = "0" * 64


@dataclass(frozen=True, slots=True)
class Workshop:
    """What a replica needs of the store that made it."""

    files: FileOps
    clock: Clock
    gate: Gate
    watchdog: Watchdog
    replicas: Path
    temporary: Path
    refused_functions: frozenset[str]
    float_digits: int | None
    link: Callable[[str, Path], None]
    register: Callable[[Replica], None]
    forget: Callable[[Replica], None]


class Replica:
    """One writable database. Made by `Store.acquire`, `branch` and `reset`, ended by `release`.

    Attributes:
        digest: sha256 of its template.
        generation: Its name: 32 hexadecimal digits, never used before and never again.
    """

    def __init__(self, workshop: Workshop, digest: str, generation: str, frames: int) -> None:
        self.digest = digest
        self.generation = generation
        self._workshop = workshop
        self._path = workshop.replicas / f"{generation}.db"
        self._wal = sidecar(self._path, "-wal")
        self._frames = frames
        self._checksum: tuple[int, tuple[int, int]] | None = None
        self._turn = threading.Lock()
        self._closed = False
        self._orphaned = False
        self._policy = Policy(workshop.refused_functions)
        self._account = vfs.TemporaryFiles(workshop.temporary)
        self._meter = Meter(
            self._wal,
            self._account,
            workshop.clock,
            gate=workshop.gate,
            watchdog=workshop.watchdog,
            committed_bytes=lambda: wal_bytes(self._frames, self._page_size),
            free_bytes=lambda: workshop.files.free_bytes(workshop.replicas),
        )
        with vfs.charged(self._account):
            self._opened: Opened = open_replica(
                self._path,
                self._policy,
                check=self._meter.check,
                committed=self._committed,
                float_digits=workshop.float_digits,
            )
        self._connection = self._opened.connection
        self._page_size = self._opened.page_size
        self._meter.attach(self._opened)
        self._runner = Runner(self._connection, self._policy, self._meter)

    def _committed(self, frames: int) -> None:
        self._frames = frames

    @contextmanager
    def _own(self) -> Generator[None]:
        """The right to use the connection, or an error at once."""
        if not self._turn.acquire(blocking=False):
            raise ReplicaBusy("another thread is using this replica")
        try:
            if self._closed:
                raise ReplicaClosed("the replica was released")
            with vfs.charged(self._account):
                yield
        finally:
            self._turn.release()
            if self._orphaned:
                self.release()

    def execute(
        self, text: str, limits: Limits = DEFAULT_LIMITS, *, on_long: Callable[[], None] | None = None
    ) -> Execution:
        """Run a text of SQL to its end or to its first failing statement.

        Args:
            text: Any number of statements. See `execution` for how they are split and run.
            limits: What this call may use.
            on_long: Called once, on this thread and within a statement, when the call has used so much processor time
                that from now on it takes turns with others (see `gate`). It must be short and raise nothing.

        Raises:
            ReplicaBusy: Another thread is executing here.
            ReplicaClosed: It was released, perhaps meanwhile; nothing of it counts.
            StoreFull, EngineFault, TemplateDamaged: The machine failed. What was committed before stays: branch from
                the position before this call to repeat it.
        """
        with self._own(), memory_for("executing a text"):
            self._meter.start(limits, on_long)
            try:
                with translated("executing a text"):
                    account = self._runner.run(text, limits)
                elapsed, cpu = self._meter.wall_s, self._meter.cpu_s
            finally:
                self._meter.finish()
            shown, last = account.shown, account.last
            failed = last is not None and last.error is not None
            result = last if failed else shown or last
            return Execution(
                statements=account.told,
                statements_seen=account.seen,
                outcome=last.outcome if last else Outcome.OK,
                error=last.error if last else None,
                columns=shown.columns if shown else (),
                rows=shown.rows if shown else [],
                rows_seen=shown.rows_seen if shown else 0,
                truncated=shown.truncated if shown else False,
                rowcount=account.rowcount,
                rows_changed=account.rows_changed,
                pragma_set=account.pragma_set,
                in_transaction=self._connection.in_transaction,
                pinned=self._pinned(),
                transaction_rolled_back=self._runner.transaction_rolled_back,
                position=self._position(),
                elapsed_ms=elapsed * 1e3,
                parked_ms=self._meter.parked_s * 1e3,
                cpu_ms=cpu * 1e3,
                digest=result.digest if result else _NOTHING,
            )

    @property
    def position(self) -> Position:
        """The last committed state; an open transaction is not part of it."""
        with self._own():
            return self._position()

    def _position(self) -> Position:
        if self._frames == 0:
            return Position(self.generation, 0)
        if self._checksum is None or self._checksum[0] != self._frames:
            header = self._frame_header(self._frames)
            self._checksum = (self._frames, header.checksum)
        return Position(self.generation, self._frames, self._checksum[1])

    def _frame_header(self, frame: int) -> FrameHeader:
        with translated("reading a WAL"):  # through SQLite's descriptor: there may be no other left
            offset = frame_offset(frame, self._page_size)
            data = os.pread(self._opened.wal_descriptor, FRAME_HEADER_BYTES, offset)
        return parse_frame_header(data)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        with self._own():
            return self._connection.in_transaction

    @property
    def pinned(self) -> bool:
        """Whether the connection holds what its WAL does not: a branch or a crash would lose it.

        An open transaction, TEMP objects, an attached database, or written planner statistics (they count from the
        next opening only). Asked of SQLite, never inferred from text.
        """
        with self._own():
            return self._pinned()

    def _pinned(self) -> bool:
        if self._connection.in_transaction or self._runner.statistics_edited:
            return True
        if len(self._connection.db_names()) > 2:
            return True
        if not has_temporary_database(self._connection):
            return False
        with self._policy.trusted():
            return bool(query(self._connection, "SELECT 1 FROM temp.sqlite_schema LIMIT 1"))

    def branch(self, at: Position | None = None) -> Replica:
        """A new replica in a committed state of this one; this one stays as it is.

        Args:
            at: A position that this generation has reported; the present one where left out. What an open
                transaction, TEMP objects and PRAGMAs hold is not part of any position.

        Raises:
            UnknownPosition: Another generation's, or no commit of this one.
            StoreFull, TooManyLinks, TemplateMissing and other StoreErrors: it could not be made; nothing is left of it.
        """
        with self._own():
            position = self._position() if at is None else at
            self._check(position)
            length = wal_bytes(position.frames, self._page_size)
            return make(self._workshop, self.digest, self._wal if length else None, length, position.frames)

    def _check(self, position: Position) -> None:
        if position.generation != self.generation:
            raise UnknownPosition(f"generation {position.generation} is not {self.generation}")
        if position.frames == 0:
            return
        if position.frames > self._frames:
            raise UnknownPosition(f"{position.frames} frames, but {self._frames} are committed")
        header = self._frame_header(position.frames)
        if header.checksum != position.checksum or not header.commit_pages:
            raise UnknownPosition(f"no commit with this checksum ends at frame {position.frames}")

    def reset(self, *, release: bool = False) -> Replica:
        """A new replica in the template's state.

        Args:
            release: Release this one once the new one stands.
        """
        with self._own():
            fresh = make(self._workshop, self.digest, None, 0, 0)
        if release:
            self.release()
        return fresh

    def disk_bytes(self) -> int:
        """Bytes on disk that are this replica's alone: its WAL and its temporary files."""
        with self._own():
            return self._meter.wal_file_bytes() + self._account.bytes()

    def peek_bytes(self) -> int:
        """The same without owning the replica: what another thread is writing may be counted or not."""
        return self._meter.wal_file_bytes() + self._account.bytes()

    def end_call(self) -> None:
        """End the statement that is running, and refuse every other, without waiting: the replica is to be released."""
        self._meter.close()

    def release(self, wait_s: float | None = None) -> bool:
        """End the replica and remove its files. Ends a statement that is running; a second call does nothing.

        Args:
            wait_s: How long to wait for the running statement, which SQLite may not be able to end (one row that takes
                minutes); as long as it takes where left out.

        Returns:
            Whether the replica is gone. If not, the thread that is executing removes it when it comes back.
        """
        self._meter.close()
        if not self._turn.acquire(timeout=-1 if wait_s is None else wait_s):
            self._orphaned = True
            if not self._turn.acquire(blocking=False):
                return False
        try:
            self._close()
        finally:
            self._turn.release()
        return True

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self._connection.close(True)
        finally:
            self._account.close()
            self._workshop.forget(self)
            remove(self._workshop.files, self._path)

    def __repr__(self) -> str:
        return f"<Replica {self.generation[:8]} of {self.digest[:8]}, {self._frames} frames>"


def make(workshop: Workshop, digest: str, wal: Path | None, length: int, frames: int) -> Replica:
    """The one primitive: a replica of a template with the first `length` bytes of a WAL, under a new name.

    Raises:
        StoreError, EngineFault: It could not be made; nothing is left of it.
    """
    generation = uuid.uuid4().hex
    path = workshop.replicas / f"{generation}.db"
    try:
        if wal is not None:  # the WAL first, the link last: a half-made replica has no main file
            with translated("copying a WAL"):
                workshop.files.copy(wal, sidecar(path, "-wal"), length)
        workshop.link(digest, path)
        replica = Replica(workshop, digest, generation, frames)
    except BaseException:
        remove(workshop.files, path)
        raise
    workshop.register(replica)
    return replica


def remove(files: FileOps, path: Path) -> None:
    """Remove a replica's files, its main file last."""
    with translated("removing a replica"):
        for suffix in ("-wal", "-journal", ""):  # there is no -shm without shared memory
            files.unlink(sidecar(path, suffix))
