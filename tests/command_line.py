"""`bird-env` in this process, as a user of the shell would call it."""

from __future__ import annotations

import functools
import json
from typing import Any

import typer
from typer.testing import CliRunner, Result

from bird_env.cli import build


@functools.cache
def _app() -> typer.Typer:
    return build()


def run(*arguments: object) -> Result:
    """What came of it; an exception that is no exit code fails the test."""
    result = CliRunner().invoke(_app(), [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def document(result: Result) -> Any:
    """What a command printed with `--json`."""
    return json.loads(result.stdout)
