"""What commands share in speaking: tables for people, JSON for programs, errors with their hint.

With `--json` standard output holds one JSON document and nothing else, an `error` where there is no result; remarks and
bars go to standard error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import typer

from bird_env.cli import INTERRUPTED, UNUSABLE, shown, tell

#: Lines of one kind that a person is shown; a program gets all of them.
LINES_SHOWN = 20


def print_json(document: Any) -> None:
    """One document in ASCII: texts of tasks may hold what no terminal and no pipe can encode."""
    typer.echo(json.dumps(document, ensure_ascii=True, indent=2))


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Sequence[str] = (),
    rest: str | None = None,
) -> None:
    """A table whose cells are texts as they are, never markup.

    Args:
        right: Columns of numbers.
        rest: The column that takes what width is left, one line a row, cut where it does not fit.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, expand=rest is not None)
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in right else "left"
        if column == rest:
            table.add_column(column, overflow="ellipsis", no_wrap=True, ratio=1)
        else:
            table.add_column(column, justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown(str(cell))) for cell in row))
    Console().print(table)


def remark(text: str) -> None:
    """A line on standard error."""
    typer.echo(shown(text), err=True)


def megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1_000_000:,.1f} MB"


def remark_some(lines: Sequence[str], rest: str) -> None:
    """The first lines on standard error, then how many more there are and where: a file may have thousands.

    Args:
        rest: Where all of them are, such as `--json has them all`.
    """
    for line in lines[:LINES_SHOWN]:
        remark(line)
    if len(lines) > LINES_SHOWN:
        remark(f"… and {len(lines) - LINES_SHOWN:,} more such lines; {rest}.")


@contextmanager
def errors_told(*, as_json: bool = False, kept: Callable[[], str] | str = "Nothing was changed.") -> Generator[None]:
    """Turn an error inside the block into a line with its hint, and exit code 2; Ctrl-C into a line and exit code 130.

    Errors of ours, of the operating system and of the catalogue are told. Others are defects and go on with their
    traceback, and so does a reader of standard output that went away, which the command line ends quietly.

    Args:
        as_json: Whether standard output gets the error as a document.
        kept: What an interrupted command leaves, and how to go on.
    """
    from bird_server.refusals import refusal

    try:
        yield
    except KeyboardInterrupt as interrupt:
        tell("interrupted", "Interrupted", kept if isinstance(kept, str) else kept(), as_json=as_json)
        raise typer.Exit(INTERRUPTED) from interrupt
    except Exception as error:
        refused = None if isinstance(error, BrokenPipeError) else refusal(error)
        if refused is None:
            raise
        tell(refused.code, refused.message, refused.hint, as_json=as_json)
        raise typer.Exit(UNUSABLE) from error
