"""What a command says when the extra that it needs is not installed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

P = ParamSpec("P")
R = TypeVar("R")


def requires_extra(extra: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Wrap a command so that a missing third-party module names the extra to install, with exit code 2."""

    def decorate(command: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(command)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return command(*args, **kwargs)
            except ModuleNotFoundError as error:
                if error.name is None or error.name.split(".")[0].startswith("bird_"):
                    raise
                typer.echo(f"This command needs {error.name}: pip install 'bird-env[{extra}]'", err=True)
                raise typer.Exit(2) from error

        return run

    return decorate
