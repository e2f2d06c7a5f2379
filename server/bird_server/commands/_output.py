"""What commands share in speaking: tables for people, JSON for programs, errors with their hint.

With `--json` standard output holds one JSON document and nothing else; remarks and bars go to standard error.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import typer

#: Wrong use of a command, or input that cannot be used at all.
UNUSABLE = 2


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


def shown(text: str) -> str:
    """The text as a terminal may have it: with blanks for control characters and lone surrogates."""
    return "".join(character if character.isprintable() else " " for character in text)


def remark(text: str) -> None:
    """A line on standard error."""
    typer.echo(shown(text), err=True)


def megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1_000_000:,.1f} MB"


@contextmanager
def errors_told() -> Generator[None]:
    """Turn an error of ours inside the block into a line with its hint, and exit code 2."""
    from bird_env.errors import BirdEnvError
    from bird_server.refusals import why
    from bird_snapshots.errors import SnapshotError

    try:
        yield
    except (BirdEnvError, SnapshotError) as error:
        remark(str(why(error)))
        raise typer.Exit(UNUSABLE) from error
