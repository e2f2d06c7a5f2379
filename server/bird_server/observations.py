"""What a policy reads: an execution as text in the format that was asked for, bounded, beside the typed result.

Formats: `table` (aligned columns), `json`, `csv`, and `repr`, which policies trained with BIRD-RL's tools know: "SQL
executed successfully." and the Python repr of the list of rows (https://github.com/bird-bench/BIRD-RL). In `csv` a NULL
is an empty field and an empty text is `""`, as the sqlite3 shell writes them; a line that begins with `# ` is a note.
Whatever is cut is said: how many rows are not there, how many characters are not shown.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence

from bird_env import models, values
from bird_env.models import Observation, ObservationFormat, Outcome
from bird_env.values import Value
from bird_server.sql_text import first_word
from bird_snapshots.execution import Execution, StatementResult
from bird_snapshots.failures import Outcome as EngineOutcome
from bird_snapshots.failures import SqlFailure

#: Rows that a text is made of at most, whatever is returned typed: more would be cut by the character limit anyway.
MAX_TEXT_ROWS = 10_000

#: A column of `table` is aligned up to this width: one long value must not widen a thousand short ones.
MAX_ALIGNED_CHARS = 80

#: A longer value is cut before it is written into the text: escaping a megabyte of it would take a second.
MAX_TEXT_VALUE_CHARS = 20_000

#: Columns of a statement that are named in its own entry; those of the shown result are all there.
MAX_STATEMENT_COLUMNS = 100

#: Cells, or bytes of text, from which an observation is written off the event loop.
HEAVY_CELLS = 500
HEAVY_STATEMENTS = 20
HEAVY_BYTES = 20_000

#: Characters of a statement, of an error message and of a column's name that are repeated in a reply.
MAX_ECHO_CHARS = 2_000

OUTCOMES: dict[EngineOutcome, Outcome] = {
    EngineOutcome.OK: Outcome.OK,
    EngineOutcome.SQL_ERROR: Outcome.SQL_ERROR,
    EngineOutcome.TIMEOUT: Outcome.TIMEOUT,
    EngineOutcome.LIMIT: Outcome.LIMIT,
    EngineOutcome.QUOTA: Outcome.QUOTA,
}

_RESULT_WORDS = frozenset(("select", "with", "pragma"))
_NOT_PLAIN = re.compile(r"[^ -~]")
_QUOTED_IN_CSV = re.compile(r"""^#|[,"\r\n]|^$""")


def observe(execution: Execution, format: ObservationFormat, *, text_chars: int, cpu_s: float) -> Observation:
    """The observation of an execution.

    Args:
        execution: What SQLite did; its outcome is never STARVED (that is a fault of ours, not an observation).
        format: How `text` is written.
        text_chars: Characters of `text` at most; what is cut is counted in `text_truncated_chars`.
        cpu_s: The limit that a timeout's text names.
    """
    rows = [tuple(_plain(value) for value in row) for row in execution.rows]
    short, left_out = _shortened(rows[:MAX_TEXT_ROWS], max(text_chars, MAX_TEXT_VALUE_CHARS))
    text = _printable(_WRITERS[format](execution, short, cpu_s))
    shown, cut = _bounded(text, text_chars, left_out)
    return Observation(
        text=shown,
        format=format,
        text_truncated_chars=cut,
        columns=[_echoed(name) for name in execution.columns],
        rows=values.encode_rows(rows),
        rows_seen=execution.rows_seen,
        rowcount=execution.rowcount,
        truncated=execution.truncated,
        statements=[_statement(each) for each in execution.statements],
        statements_seen=execution.statements_seen,
        error=_failure(execution.error),
        in_transaction=execution.in_transaction,
        transaction_rolled_back=execution.transaction_rolled_back,
        result_hash=result_hash(execution),
    )


def is_heavy(execution: Execution) -> bool:
    """Whether writing it down takes so long that the event loop must not wait for it: more than about a millisecond."""
    cells = len(execution.rows) * len(execution.columns)
    if cells > HEAVY_CELLS or len(execution.columns) > HEAVY_CELLS or execution.statements_seen > HEAVY_STATEMENTS:
        return True
    size = sum(len(value) for row in execution.rows for value in row if isinstance(value, str | bytes))
    return size + sum(len(each.sql) for each in execution.statements) > HEAVY_BYTES


def result_hash(execution: Execution) -> str:
    """Equal for equal results: sha256 over outcome, error, columns and the engine's digest of every row seen."""
    parts = [
        str(OUTCOMES[execution.outcome]),
        execution.error.message if execution.error else "",
        json.dumps(list(execution.columns)),
        execution.digest,
    ]
    return hashlib.sha256("\x1f".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def error_message(execution: Execution, cpu_s: float) -> str:
    """Why a step failed, in one line; SQLite's words where they are SQLite's."""
    if execution.outcome is EngineOutcome.TIMEOUT:
        return f"Timeout after {cpu_s:g}s"
    return _echoed(execution.error.message) if execution.error else str(execution.outcome)


def _statement(each: StatementResult) -> models.StatementOutcome:
    return models.StatementOutcome(
        sql=_echoed(each.sql),
        outcome=OUTCOMES[each.outcome],
        readonly=each.readonly,
        columns=[_echoed(name) for name in each.columns[:MAX_STATEMENT_COLUMNS]],
        rows_seen=each.rows_seen,
        rowcount=each.rowcount,
        elapsed_ms=round(each.elapsed_ms, 3),
        error=_failure(each.error),
    )


def _echoed(text: str) -> str:
    """A text of the policy's own, given back: whole where it is short, else its beginning and how much is left out."""
    if len(text) <= MAX_ECHO_CHARS:
        return text
    return f"{text[:MAX_ECHO_CHARS]}… [{len(text) - MAX_ECHO_CHARS} more characters]"


def _failure(failure: SqlFailure | None) -> models.SqlError | None:
    if failure is None:
        return None
    return models.SqlError(
        message=_echoed(_printable(failure.message)),
        sqlite_code=failure.sqlite_code,
        statement_index=failure.statement_index,
        offset=failure.offset,
        hint=failure.hint,
    )


def _plain(value: object) -> Value:
    if value is None or isinstance(value, int | float | str | bytes):
        return value
    raise TypeError(f"the engine returned a value of type {type(value).__name__}")


def _printable(text: str) -> str:
    """Text that any encoder takes: what is not UTF-8 becomes a visible escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _bounded(text: str, limit: int, left_out: int) -> tuple[str, int]:
    """The text within the limit, its note included, and how many characters were cut, here or before."""
    if len(text) <= limit:
        return text, 0
    room = max(0, limit - len(_cut_note(len(text) + left_out)))
    cut = len(text) + left_out - room
    return (text[:room] + _cut_note(cut))[:limit], cut


def _shortened(rows: Sequence[Sequence[Value]], limit: int) -> tuple[Sequence[Sequence[Value]], int]:
    """Rows whose values go no further than the text will, and how many characters that leaves out."""
    left_out = 0

    def short(value: Value) -> Value:
        nonlocal left_out
        if isinstance(value, str | bytes) and len(value) > limit:
            left_out += len(value) - limit
            return value[:limit]
        return value

    return [[short(value) for value in row] for row in rows], left_out


def _cut_note(cut: int) -> str:
    return f"\n[{cut} more characters not shown]"


def _notes(execution: Execution) -> list[str]:
    """What the numbers alone do not tell a reader."""
    notes: list[str] = []
    if execution.outcome is not EngineOutcome.OK and execution.statements_seen > 1:
        notes.append(f"{execution.statements_seen - 1} earlier statement(s) of this text had run.")
    if execution.transaction_rolled_back:
        notes.append("The open transaction was rolled back.")
    elif execution.in_transaction:
        notes.append("A transaction is open.")
    if execution.error is not None and execution.error.hint:
        notes.append(execution.error.hint)
    return notes


def _summary(execution: Execution) -> str:
    """One line for a step without a result set."""
    if not execution.statements:
        return "Nothing to execute."
    changed = execution.rows_changed
    plural = "" if changed == 1 else "s"
    if any(each.rowcount is not None for each in execution.statements):
        return f"OK, {changed} row{plural} changed."
    return "OK."


def _row_note(execution: Execution, rows: Sequence[Sequence[Value]]) -> str:
    seen, shown = execution.rows_seen, len(rows)
    plural = "" if seen == 1 else "s"
    return f"({seen} row{plural})" if shown == seen else f"({seen} row{plural}, the first {shown} shown)"


def _cut_rows_note(execution: Execution, rows: Sequence[Sequence[Value]]) -> list[str]:
    return [_row_note(execution, rows)] if len(rows) < execution.rows_seen else []


def _as_table(execution: Execution, rows: Sequence[Sequence[Value]], cpu_s: float) -> str:
    if execution.outcome is not EngineOutcome.OK:
        return "\n".join([f"Error: {error_message(execution, cpu_s)}", *_notes(execution)])
    if not execution.columns:
        return "\n".join([_summary(execution), *_notes(execution)])
    cells = [[_cell(value) for value in row] for row in rows]
    header = [_one_line(name) for name in execution.columns]
    widths = [
        min(MAX_ALIGNED_CHARS, max([len(name), *(len(row[index]) for row in cells)]))
        for index, name in enumerate(header)
    ]
    lines = [
        " | ".join(name.ljust(width) for name, width in zip(header, widths, strict=True)).rstrip(),
        "-+-".join("-" * width for width in widths),
        *(" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells),
        _row_note(execution, rows),
    ]
    return "\n".join([*lines, *_notes(execution)])


def _as_json(execution: Execution, rows: Sequence[Sequence[Value]], cpu_s: float) -> str:
    body: dict[str, object] = {"outcome": str(OUTCOMES[execution.outcome])}
    notes = _notes(execution)
    if execution.outcome is not EngineOutcome.OK:
        body["error"] = error_message(execution, cpu_s)
    elif execution.columns:
        body |= {
            "columns": list(execution.columns),
            "rows": values.encode_rows(rows),
            "rows_seen": execution.rows_seen,
        }
        notes = [*_cut_rows_note(execution, rows), *notes]
    else:
        body["rows_changed"] = execution.rows_changed
    if notes:
        body["notes"] = notes
    return json.dumps(body, ensure_ascii=False)


def _as_csv(execution: Execution, rows: Sequence[Sequence[Value]], cpu_s: float) -> str:
    if execution.outcome is not EngineOutcome.OK or not execution.columns:
        return _as_table(execution, rows, cpu_s)
    lines = [",".join(_csv_field(value) for value in row) for row in (execution.columns, *rows)]
    lines += [f"# {note}" for note in (*_cut_rows_note(execution, rows), *_notes(execution))]
    return "".join(f"{line}\n" for line in lines)


def _as_repr(execution: Execution, rows: Sequence[Sequence[Value]], cpu_s: float) -> str:
    if execution.outcome is not EngineOutcome.OK:
        return f"Execution failed: {error_message(execution, cpu_s)}"
    text = "SQL executed successfully."
    last = execution.statements[-1] if execution.statements else None
    if last is not None and first_word(last.sql) in _RESULT_WORDS:
        results = [tuple(row) for row in rows] if last.columns else []
        text += f"\n\nResults: {results!r}"
        if last.columns:
            text += "".join(f"\n{note}" for note in _cut_rows_note(execution, rows))
    return text


_WRITERS: dict[ObservationFormat, Callable[[Execution, Sequence[Sequence[Value]], float], str]] = {
    ObservationFormat.TABLE: _as_table,
    ObservationFormat.JSON: _as_json,
    ObservationFormat.CSV: _as_csv,
    ObservationFormat.REPR: _as_repr,
}


def _cell(value: Value) -> str:
    return "NULL" if value is None else _one_line(_bare(value))


def _bare(value: Value) -> str:
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    return str(value)


def _csv_field(value: Value) -> str:
    if value is None:
        return ""
    text = _bare(value)
    return '"' + text.replace('"', '""') + '"' if _QUOTED_IN_CSV.search(text) else text


def _one_line(text: str) -> str:
    """A cell keeps to its line: control characters are written as escapes."""
    return text if text.isprintable() else _NOT_PLAIN.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    character = found.group()
    return character if character.isprintable() else character.encode("unicode_escape").decode()
