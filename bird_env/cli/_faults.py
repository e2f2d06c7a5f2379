"""How the command line says that something cannot be done: a line for people, and with `--json` a document too.

    {"error": {"code": "data_error", "detail": "tasks.jsonl cannot be read: No such file or directory", "hint": null}}

A program that reads standard output of a command with `--json` finds one JSON document there, whatever happened. Wrong
use is told so as well: `Commands` looks over the parser's shoulder, since no command runs then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

#: Exit code of wrong use, and of input that cannot be used at all.
UNUSABLE = 2
#: Exit code after Ctrl-C, as shells have it: 128 and the signal's number.
INTERRUPTED = 130

_ARGUMENTS = "bird_env.arguments"


def shown(text: str) -> str:
    """The text as a terminal may have it: with blanks for control characters and lone surrogates."""
    return "".join(character if character.isprintable() else " " for character in text)


def error_document(code: str, detail: str, hint: str | None = None) -> dict[str, dict[str, str | None]]:
    """What a command with `--json` prints instead of its result."""
    return {"error": {"code": code, "detail": detail, "hint": hint}}


def print_error_document(code: str, detail: str, hint: str | None = None) -> None:
    """The same on standard output, in ASCII: a detail may hold what no pipe can encode."""
    typer.echo(json.dumps(error_document(code, detail, hint), ensure_ascii=True, indent=2))


def tell(code: str, detail: str, hint: str | None = None, *, as_json: bool = False) -> None:
    """A line on standard error, and with `as_json` a document on standard output."""
    typer.echo(shown(f"{detail.rstrip('.')}.{f' {hint}' if hint else ''}"), err=True)
    if as_json:
        print_error_document(code, detail, hint)


class Commands(TyperGroup):
    """The root of the command line. Wrong use, found by the parser of any command, is told in JSON where asked for."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[_ARGUMENTS] = tuple(args)
        with _usage_told(args):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with _usage_told(ctx.meta[_ARGUMENTS]):
            return super().invoke(ctx)


@contextmanager
def _usage_told(arguments: list[str] | tuple[str, ...]) -> Generator[None]:
    try:
        yield
    except Exception as error:
        # The parser's errors have no public name in every Typer: they are those that can word their own message.
        message: Callable[[], str] | None = getattr(error, "format_message", None)
        if message is not None and "--json" in arguments:
            print_error_document("usage", message(), "Add -h to see what the command takes.")
        raise
