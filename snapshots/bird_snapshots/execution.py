"""One text of SQL, executed on a replica: split by SQLite itself, statement by statement, to its first error.

How: apsw prepares the head of the text and tells, before anything runs, where the statement ends (its execution
tracer). A statement that is the whole rest of the text runs at once; otherwise it is prepared again alone, so that its
error and its changes are its own. Statements run as in the sqlite3 shell: autocommit unless the text says BEGIN.
Blanks, comments, `;` and a byte order mark are no statement. Every result is read to its end: rows beyond the caps are
counted and hashed, then dropped. Of a text of very many statements the first ones and the last one are told.

What a policy's SQL does wrong is data (`SqlFailure`), never an exception; what the machine does wrong is an exception,
never data (`failures` tells them apart). Waiting, admission and parameters are left to callers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import apsw

from bird_snapshots import native
from bird_snapshots.connect import CHECK_EVERY_STEPS, CHECK_WRITES_EVERY_STEPS, LIMITS
from bird_snapshots.errors import EngineFault
from bird_snapshots.failures import Outcome, SqlFailure, failure_of, invalid_text, missing_parameter, over_quota
from bird_snapshots.limits import Limits
from bird_snapshots.meter import Meter, Stop
from bird_snapshots.policy import Policy
from bird_snapshots.position import Position
from bird_snapshots.rows import Collector, Row
from bird_snapshots.sql import TypedCursor, cursor, row_of

__all__ = ["Account", "Execution", "Outcome", "Runner", "SqlFailure", "StatementResult"]

#: Between two looks at the clock while large rows are read: SQLite's own looks count its steps, not our bytes.
_LOOK_EVERY_BYTES = 4_000_000


#: A row of a result may have this many bytes in all: 64 values of a megabyte, or 2,000 of 32 KB. A row is in memory as
#: a whole, some three times.
_ROW_BYTES = 64_000_000

#: What the calls of functions in a statement may make in all, each once: 512 of a megabyte. SQLite may hold all of it.
_VALUES_BYTES = 512_000_000

#: Statements of a text that are told one by one, and the last one beyond them.
TOLD_STATEMENTS = 100

#: A column's name is told to this many characters. A result whose names are together longer than so many bytes is
#: refused: they may be expressions of any length, repeated for every column by a view.
NAME_CHARACTERS = 1_000
NAMES_BYTES = 200_000

#: Of a longer text, this much is shown to SQLite first to find where its next statement ends.
_WINDOW_CHARACTERS = 4_096


@dataclass(slots=True)
class StatementResult:
    """One statement of a text.

    Attributes:
        sql: The statement as it stands in the text; after a syntax error, the text from there on.
        outcome: What became of it.
        readonly: Whether SQLite says that it cannot change a database; None where it could not be prepared.
        columns: Names of the result's columns; empty for a statement without a result, and for one that failed. A
            very long one is cut, and says so.
        rows: Kept rows, of the last statement with a result only.
        rows_seen: Rows that the result had.
        truncated: Whether the caps kept fewer rows than were seen.
        rowcount: Rows that this statement itself inserted, updated or deleted; None for reads and definitions.
        elapsed_ms: Milliseconds from its preparation to its end.
        error: Why it failed.
        digest: sha256 over columns, every row seen, rowcount, outcome and error message.
    """

    sql: str
    outcome: Outcome = Outcome.OK
    readonly: bool | None = None
    columns: tuple[str, ...] = ()
    rows: list[Row] = field(default_factory=list[Row])
    rows_seen: int = 0
    truncated: bool = False
    rowcount: int | None = None
    elapsed_ms: float = 0.0
    error: SqlFailure | None = None
    digest: str = ""


@dataclass(slots=True)
class Execution:
    """What came of one text.

    `columns`, `rows`, `rows_seen` and `truncated` are those of the last statement with a result, `rowcount` that of
    the last statement which changed or could have changed rows, `outcome` and `error` those of the last statement.

    Attributes:
        statements: The first TOLD_STATEMENTS of the text, and the last one that ran: the failing one, if one failed.
        statements_seen: How many ran, the failing one included.
        rows_changed: Sum of the `rowcount` of all of them.
        pragma_set: One of them was a PRAGMA without a result that writes no database: it may have set what lasts as
            long as the connection.
        in_transaction: A transaction is open now.
        pinned: The connection holds what its WAL does not; see `Replica.pinned`.
        transaction_rolled_back: A transaction that was open before the failing statement is gone after it.
        position: The committed state now.
        elapsed_ms, cpu_ms: Milliseconds on the wall, and of this thread's processor time.
        parked_ms: Milliseconds that it waited for its turn on a processor (see `gate`); not part of `elapsed_ms`.
        digest: The digest of the statement whose result is shown, or of the failing one; of nothing, 64 zeros.
    """

    statements: list[StatementResult]
    outcome: Outcome
    error: SqlFailure | None
    columns: tuple[str, ...]
    rows: list[Row]
    rows_seen: int
    truncated: bool
    rowcount: int | None
    in_transaction: bool
    pinned: bool
    transaction_rolled_back: bool
    position: Position
    elapsed_ms: float
    cpu_ms: float
    digest: str
    statements_seen: int = 0
    rows_changed: int = 0
    pragma_set: bool = False
    parked_ms: float = 0.0


class Account:
    """What is kept of a text's statements while they run: few of them, and the rows of one."""

    def __init__(self) -> None:
        self.told: list[StatementResult] = []
        self.shown: StatementResult | None = None
        self.last: StatementResult | None = None
        self.rowcount: int | None = None
        self.rows_changed = 0
        self.seen = 0
        self.pragma_set = False

    def add(self, result: StatementResult) -> None:
        """A statement ran. Its rows are kept only as long as none after it has a result."""
        self.seen += 1
        if self.seen <= TOLD_STATEMENTS + 1:
            self.told.append(result)
        else:
            self.told[-1] = result
        self.last = result
        if result.columns:
            if self.shown is not None:
                self.shown.rows = []
            self.shown = result
        else:
            result.rows = []
        if result.rowcount is not None:
            self.rowcount = result.rowcount
            self.rows_changed += result.rowcount


class _Head:
    """What the execution tracer learns about the statement at the head of a text, and whether it may run now."""

    def __init__(self, text: str, refuse: Callable[[_Head], bool]) -> None:
        self.text = text
        self.sql = text
        self.is_statement = True
        self.prepared = False
        self.readonly = False
        self.columns: tuple[str, ...] = ()
        self.parameters: tuple[str, ...] = ()
        self.asks_pragma = False
        self.refused = False
        self.alone = True
        self._refuse = refuse

    def trace(self, running: apsw.Cursor, sql: str, _bindings: object) -> bool:
        if not self.text.startswith(sql):
            raise EngineFault("SQLite's statement is not the head of the text")
        self.sql, self.prepared = sql, True
        self.is_statement = running.has_vdbe
        self.readonly = running.is_readonly
        self.alone = len(sql) == len(self.text)
        if not self.alone or not self.is_statement:
            return False
        try:
            self.columns = tuple(name for name, *_ in running.get_description())
        except UnicodeDecodeError:
            self.columns = native.columns(native.statement(running.connection, sql))
        self.refused = self._refuse(self)
        return not self.refused

    def find_parameters(self, connection: apsw.Connection) -> None:
        """The statement has parameters, for which apsw refuses it before the tracer is asked."""
        end, self.parameters = native.parameters(connection, self.text)
        self.sql = self.text.encode()[:end].decode()
        self.alone = len(self.sql) == len(self.text)


class Runner:
    """Executes texts on one connection. One thread at a time; the replica sees to that."""

    def __init__(self, connection: apsw.Connection, policy: Policy, meter: Meter) -> None:
        self._connection = connection
        self._policy = policy
        self._meter = meter
        self._checked_every = CHECK_EVERY_STEPS
        self._value_bytes = LIMITS[apsw.SQLITE_LIMIT_LENGTH]
        self._over_in_transaction = False
        self.transaction_rolled_back = False
        self.statistics_edited = False

    def run(self, text: str, limits: Limits) -> Account:
        """Execute a text to its end or to its first failing statement.

        Raises:
            StoreFull, EngineFault, TemplateDamaged, ReplicaClosed: The machine failed, not the SQL.
        """
        self.transaction_rolled_back = False
        account = Account()
        problem = invalid_text(text)
        if problem is not None:
            problem.locate(text, 0, 0)
            result = StatementResult(text, Outcome.SQL_ERROR, error=problem)
            self._describe(_Head(text, self._refuse), result, Collector((), 0, 0))
            account.add(result)
            return account
        offset = 0
        while offset < len(text):
            self._limit_values(limits.value_bytes)  # a wide row before may have lowered it, and literals count too
            head, result = self._next(text, offset, limits)
            if not head.sql:
                raise EngineFault("SQLite found a statement of no characters")
            if head.is_statement:
                result.sql = head.sql.strip()
                account.add(result)
                account.pragma_set |= head.asks_pragma and head.readonly and result.error is None and not head.columns
            if result.error is not None:
                result.error.locate(text, offset, account.seen - 1)
                break
            offset += len(head.sql)
        return account

    def _next(self, text: str, offset: int, limits: Limits) -> tuple[_Head, StatementResult]:
        """Run the statement that begins at an offset, or find that there is none."""
        start = self._meter.wall_s
        before = self._connection.in_transaction
        head = self._peek_windows(text, offset)
        if head is None:
            head, result = self._attempt(text[offset:], limits)
            if result.error is None and head.is_statement and not head.alone:
                head, result = self._attempt(head.sql, limits)
        elif head.is_statement:
            head, result = self._attempt(head.sql, limits)
        else:
            result = StatementResult(head.sql)
        result.elapsed_ms = (self._meter.wall_s - start) * 1e3
        if result.error is not None and before and not self._connection.in_transaction:
            self.transaction_rolled_back = True
        return head, result

    def _peek_windows(self, text: str, offset: int) -> _Head | None:
        """The statement's extent, from growing pieces of a long text; None where only the whole rest can tell.

        A statement that ends before its piece does was ended by its own `;`, so that what follows cannot matter.
        Without this a text of n statements would be copied n times.
        """
        size = _WINDOW_CHARACTERS
        while offset + size < len(text):
            head = _Head(text[offset : offset + size], lambda _head: True)
            running = cursor(self._connection)
            running.exec_trace = head.trace
            try:
                running.execute(head.text, can_cache=False)
            except apsw.BindingsError:
                head.find_parameters(self._connection)
                if not head.alone:
                    return head
            except (apsw.Error, MemoryError):
                if head.prepared and not head.alone:
                    return head
            finally:
                running.close(True)
            size *= 8
        return None

    def _attempt(self, text: str, limits: Limits) -> tuple[_Head, StatementResult]:
        head, result = _Head(text, self._refuse), StatementResult(text)
        self._policy.begin()
        self._meter.begin_statement()
        running = cursor(self._connection)
        running.exec_trace = head.trace
        collector: Collector | None = None
        try:
            if self._meter.check():  # the time ran out between two statements
                raise apsw.InterruptError("interrupted")
            running.execute(text, can_cache=False)
            collector = Collector(head.columns, limits.rows, limits.result_bytes)
            self._read(running, head.sql, collector)
        except apsw.ExecTraceAbort:
            if not head.refused:
                return head, result
            names_fit = _fit(head.columns)
            result.outcome, result.error = over_quota(Stop.WAL, limits) if names_fit else _names_too_long()
        except apsw.BindingsError:
            head.find_parameters(self._connection)
            result.outcome, result.error = Outcome.SQL_ERROR, missing_parameter(head.parameters)
        except (apsw.Error, MemoryError) as error:
            result.outcome, result.error = failure_of(error, self._connection, self._meter, readonly=head.readonly)
        finally:
            running.close(True)
        self._describe(head, result, collector or Collector(head.columns, 0, 0))
        return head, result

    def _describe(self, head: _Head, result: StatementResult, collector: Collector) -> None:
        if head.prepared:
            result.readonly = head.readonly
            head.asks_pragma = self._policy.asks_pragma
            if result.error is None:
                result.columns = tuple(_told_name(name) for name in head.columns)
            if not head.readonly:
                self.statistics_edited |= self._policy.edits_statistics
                self._over_in_transaction |= self._connection.in_transaction and self._meter.over_wal_quota()
                if self._policy.counts_changes and not head.refused:
                    result.rowcount = self._connection.changes()
        if result.error is not None:  # how far a failing statement came is an accident
            collector = Collector((), 0, 0)
        result.rows = collector.rows
        result.rows_seen, result.truncated = collector.seen, collector.truncated
        message = None if result.error is None else result.error.message
        result.digest = collector.digest(str(result.outcome), message, result.rowcount)

    def _refuse(self, head: _Head) -> bool:
        """Whether a statement may not begin: nothing more may be written, or its columns' names are too long.

        Sets how often it will be looked at, and how long a value may be where a row is very wide or functions are very
        many: all of a row is in memory, and all of an inner SELECT's.
        """
        of_row, of_functions = _ROW_BYTES // max(1, len(head.columns)), _VALUES_BYTES // max(1, self._policy.functions)
        self._limit_values(min(self._meter.limits.value_bytes, of_row, of_functions))
        every = CHECK_EVERY_STEPS if head.readonly else CHECK_WRITES_EVERY_STEPS
        if every != self._checked_every:
            self._connection.set_progress_handler(self._meter.check, every)
            self._checked_every = every
        self._over_in_transaction &= self._connection.in_transaction
        if not _fit(head.columns):
            return True
        return not head.readonly and (self._meter.committed_over_quota() or self._over_in_transaction)

    def _limit_values(self, value_bytes: int) -> None:
        if value_bytes != self._value_bytes:
            self._connection.limit(apsw.SQLITE_LIMIT_LENGTH, value_bytes)
            self._value_bytes = value_bytes

    def _read(self, running: TypedCursor, sql: str, collector: Collector) -> None:
        look_at = _LOOK_EVERY_BYTES
        while True:
            try:
                for row in running:
                    collector.add(row)
                    if collector.bytes_seen >= look_at:
                        look_at = collector.bytes_seen + _LOOK_EVERY_BYTES
                        self._look()
            except UnicodeDecodeError:  # apsw decodes strictly; it leaves the statement on this row
                collector.add(row_of(self._connection, sql))
            else:
                return

    def _look(self) -> None:
        if self._meter.check():
            self._connection.interrupt()  # the next step ends the statement, and undoes it where it writes


def _fit(columns: tuple[str, ...]) -> bool:
    """Whether the names of columns, as they are told, are within their limit."""
    if sum(map(len, columns)) * 4 <= NAMES_BYTES:  # no character of UTF-8 is longer
        return True
    told = (_told_name(name).encode("utf-8", "surrogateescape") for name in columns)
    return sum(map(len, told)) <= NAMES_BYTES


def _told_name(name: str) -> str:
    left = len(name) - NAME_CHARACTERS
    return name if left <= 0 else f"{name[:NAME_CHARACTERS]}… [{left} more characters]"


def _names_too_long() -> tuple[Outcome, SqlFailure]:
    message = f"the names of the result's columns are together longer than {NAMES_BYTES} bytes"
    return Outcome.LIMIT, SqlFailure(message, hint="Give the columns short names with AS.")
