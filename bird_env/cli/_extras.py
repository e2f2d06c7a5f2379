"""What a command says when the extra that it needs is not installed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

from bird_env.cli._faults import UNUSABLE, tell

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
                detail = f"This command needs {error.name}, which is not installed"
                hint = f"pip install 'bird-env[{extra}]'"
                tell("missing_extra", detail, hint, as_json=bool(kwargs.get("as_json", False)))
                raise typer.Exit(UNUSABLE) from error

        return run

    return decorate
