"""Whose fault a failing statement is: the SQL's, as an outcome and a `SqlFailure`, or the machine's, as an exception.

what SQLite or the meter says                                   outcome or exception
-------------------------------------------------------------   -----------------------------
ended at the processor's limit                                  timeout
ended at the wall clock's limit                                 starved: the service's fault
ended at a quota (WAL, temporary bytes)                         quota
a value too long; no memory, by its own doing                   limit
no memory while others hold most of it                          StoreFull
SQLITE_FULL with a full disk, an I/O error for want of room     StoreFull
any other I/O error, a file that cannot be opened, misuse       EngineFault
SQLITE_CORRUPT or NOTADB of the database itself                 TemplateDamaged
everything else                                                 sql_error
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum

import apsw

from bird_snapshots import heap
from bird_snapshots.errors import EngineFault, ReplicaClosed, StoreFull, TemplateDamaged, from_oserror
from bird_snapshots.limits import Limits
from bird_snapshots.meter import MEMORY_BYTES, Meter, Stop
from bird_snapshots.policy import FORBIDDEN_FUNCTIONS
from bird_snapshots.sql import query

_OUT_OF_REACH = tuple(name.decode() for name in FORBIDDEN_FUNCTIONS)

#: Less room than this after SQLITE_FULL, and the disk is held to be the reason.
_ROOM_BYTES = 64_000_000


class Outcome(StrEnum):
    """What became of a statement, and of a text."""

    OK = "ok"
    SQL_ERROR = "sql_error"
    TIMEOUT = "timeout"
    LIMIT = "limit"
    QUOTA = "quota"
    STARVED = "starved"


@dataclass(slots=True)
class SqlFailure:
    """Why a statement failed.

    Attributes:
        message: SQLite's own words, or ours where SQLite was not asked.
        sqlite_code: Name of SQLite's extended result code, such as SQLITE_CONSTRAINT_UNIQUE; None for our own.
        offset: Characters from the beginning of the text to the token at fault; None where SQLite does not say.
        statement_index: Number of the statement in the text, from 0; the last of `Execution.statements`.
        hint: What to do about it, where that is not plain.
    """

    message: str
    sqlite_code: str | None = None
    offset: int | None = None
    statement_index: int = 0
    hint: str | None = None

    def locate(self, text: str, start: int, index: int) -> None:
        """Count the offset from the beginning of the whole text, in characters instead of bytes."""
        self.statement_index = max(index, 0)
        if self.offset is not None:
            before = text[start:].encode("utf-8", "surrogatepass")[: self.offset]
            self.offset = start + len(before.decode("utf-8", "ignore"))
        if self.hint is None and text.lstrip().startswith("```"):
            self.hint = "The text begins with a Markdown code fence (```): send the SQL without it."


def invalid_text(text: str) -> SqlFailure | None:
    """Why a text is no SQL at all, or None: nothing of it is executed then."""
    position = text.find("\0")
    if position >= 0:
        offset = len(text[:position].encode("utf-8", "surrogatepass"))
        return SqlFailure("the text contains a NUL character", None, offset, hint="Write it as char(0).")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        offset = len(text[: error.start].encode("utf-8", "surrogatepass"))
        return SqlFailure(
            f"the text contains a lone surrogate, U+{ord(text[error.start]):04X}, which is not a character",
            None,
            offset,
            hint="Send well-formed Unicode.",
        )
    return None


def missing_parameter(names: tuple[str, ...]) -> SqlFailure:
    """A statement with parameters: there are no values for them here."""
    numbered = any(name[1:].isdigit() for name in names)  # then a bare ? may be no more than a number left out
    listed = list(dict.fromkeys(name for name in names if name != "?" or not numbered))
    return SqlFailure(
        f"no value was given for parameter {', '.join(listed[:10])}",
        "SQLITE_ERROR",
        hint="Write the value into the statement itself.",
    )


def over_quota(stop: Stop, limits: Limits) -> tuple[Outcome, SqlFailure]:
    """The quota that a statement passed, or would pass."""
    if stop is Stop.WAL:
        message = f"over quota: this database may write {limits.wal_bytes} bytes in its life"
        return Outcome.QUOTA, SqlFailure(message, hint="What was committed before stays; a reset starts afresh.")
    if stop is Stop.MEMORY:
        message = f"over quota: an attached database in memory may take {MEMORY_BYTES} bytes"
        return Outcome.QUOTA, SqlFailure(message, hint="Attach '' instead of ':memory:': it is kept in a file.")
    message = f"over quota: temporary files and tables may take {limits.temp_bytes} bytes"
    return Outcome.QUOTA, SqlFailure(message, hint="Sort or group fewer rows; drop TEMP tables that are not needed.")


def failure_of(
    error: apsw.Error | MemoryError, connection: apsw.Connection, meter: Meter, *, readonly: bool
) -> tuple[Outcome, SqlFailure]:
    """The outcome that an exception of apsw stands for; see the table above.

    Raises:
        StoreFull, EngineFault, TemplateDamaged, ReplicaClosed: It is not the SQL's doing.
    """
    if meter.stopped is not None:
        return _stopped(meter.stopped, meter.limits)
    if isinstance(error, apsw.TooBigError):
        hint = f"A value may have {meter.limits.value_bytes} bytes, less in a statement that makes very many."
        return Outcome.LIMIT, SqlFailure(str(error), "SQLITE_TOOBIG", hint=hint)
    code = _code(error)
    if isinstance(error, apsw.NoMemError | MemoryError) or code == "SQLITE_IOERR_NOMEM":
        if heap.held_by_others(connection):
            raise heap.no_room("executing a statement") from error
        hint = "The statement holds too much at once: make fewer or shorter values, or sort and group fewer rows."
        return Outcome.LIMIT, SqlFailure("out of memory", code or "SQLITE_NOMEM", hint=hint)
    if isinstance(error, apsw.FullError):
        if readonly or not _rowids_may_be_used_up(connection) or meter.free_bytes() < _ROOM_BYTES:
            raise StoreFull(f"SQLite: {error}") from error
    elif isinstance(error, apsw.IOError | apsw.CantOpenError):
        raise _machine_fault(error, connection) from error
    elif isinstance(error, apsw.NotADBError) or (isinstance(error, apsw.CorruptError) and code == "SQLITE_CORRUPT"):
        raise TemplateDamaged(f"SQLite: {error}") from error
    elif isinstance(error, apsw.MisuseError | apsw.InternalError | apsw.InterruptError | apsw.ThreadingViolationError):
        raise EngineFault(f"SQLite: {type(error).__name__}: {error}") from error
    offset = getattr(error, "error_offset", -1)
    message = str(error)
    if message == "authorization denied":  # what VACUUM INTO says instead of the authorizer's usual words
        message = "not authorized"
    return Outcome.SQL_ERROR, SqlFailure(message, code, offset if offset >= 0 else None, hint=_hint(error))


def _stopped(stop: Stop, limits: Limits) -> tuple[Outcome, SqlFailure]:
    if stop is Stop.CLOSED:
        raise ReplicaClosed("the replica was released while it was executing")
    if stop is Stop.CPU:
        message = f"timeout: the statement used {limits.cpu_s:g} s of processor time"
        return Outcome.TIMEOUT, SqlFailure(message, "SQLITE_INTERRUPT", hint="Narrow the query or add an index.")
    if stop is Stop.WALL:
        message = f"starved: {limits.wall_s:g} s passed before the statement had its {limits.cpu_s:g} s of processor"
        return Outcome.STARVED, SqlFailure(message, "SQLITE_INTERRUPT", hint="The machine is overloaded: repeat it.")
    outcome, failure = over_quota(stop, limits)
    failure.sqlite_code = "SQLITE_INTERRUPT"
    return outcome, failure


def _code(error: BaseException) -> str | None:
    extended = getattr(error, "extendedresult", None)
    if not isinstance(extended, int):
        return None
    names = apsw.mapping_extended_result_codes if extended > 0xFF else apsw.mapping_result_codes
    name = names.get(extended) or apsw.mapping_result_codes.get(extended & 0xFF)
    return str(name) if name is not None else None


def _rowids_may_be_used_up(connection: apsw.Connection) -> bool:
    """SQLITE_FULL also says that an AUTOINCREMENT table has given out its last rowid."""
    return bool(query(connection, "SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_sequence'"))


def _machine_fault(error: apsw.Error, connection: apsw.Connection) -> Exception:
    number = connection.system_errno
    if number:
        return from_oserror(OSError(number, os.strerror(number)), f"SQLite: {error}")
    return EngineFault(f"SQLite: {error}")


def _hint(error: apsw.Error) -> str | None:
    text = str(error)
    if text.lower().endswith(_OUT_OF_REACH):
        return "Functions that load code or tell where it lies are out of reach."
    if "not authorized to use function" in text:
        return "The SQLite that scores a solution does not have this function."
    if isinstance(error, apsw.AuthError):
        return "Only ':memory:' and '' can be attached; files and extensions are out of reach."
    return None
