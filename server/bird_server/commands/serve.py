"""`bird-env serve`: the service in this process."""

from __future__ import annotations

import errno
import json
import socket
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from bird_env.cli import requires_extra
from bird_env.errors import BirdEnvError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from bird_server.state import State

#: Longer than clients keep an idle connection (30 s in ours), so that the server never closes under one.
KEEP_ALIVE_S = 120
#: Seconds for requests that are being answered at SIGTERM; what then still runs is ended. With a statement that cannot
#: be ended (the engine waits for it, then leaves it behind) all is over within some 12 s.
SHUTDOWN_S = 7
#: Seconds after SIGTERM when those who still wait are told that the server is shutting down.
ANSWER_S = 5.5
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def add(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    @requires_extra("server")
    def serve(  # pyright: ignore[reportUnusedFunction]
        data: Annotated[Path | None, typer.Option(help="Data directory.", envvar="BIRD_ENV_DATA")] = None,
        host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
        port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 takes a free one.")] = 8000,
        ready_file: Annotated[
            Path | None, typer.Option(help='Written once the server answers: {"url", "host", "port", "pid"}.')
        ] = None,
        capacity: Annotated[int | None, typer.Option(help="Live trajectories at most.")] = None,
        scorers: Annotated[int | None, typer.Option(help="Scorings at once; 0: one a core.")] = None,
        prompts: Annotated[Path | None, typer.Option(help="Folder with prompt templates of your own.")] = None,
        insecure: Annotated[
            bool, typer.Option("--insecure", help="Listen beyond loopback without any token configured.")
        ] = False,
        log_level: Annotated[LogLevel, typer.Option(help="What is logged.")] = LogLevel.INFO,
    ) -> None:
        """Run the service.

        Every other setting is an environment variable BIRD_ENV_NAME; docs/settings.md lists them.
        """
        given = {"data": data, "capacity": capacity, "scorers": scorers, "prompts": prompts}
        overrides = {name: value for name, value in given.items() if value is not None}
        raise typer.Exit(_serve(overrides, host, port, ready_file, insecure=insecure, log_level=log_level.value))


def _serve(
    overrides: dict[str, Any], host: str, port: int, ready_file: Path | None, *, insecure: bool, log_level: str
) -> int:
    import logging
    import os
    import time

    from pydantic import ValidationError

    from bird_server.app import create_app
    from bird_server.auth import Authenticator
    from bird_server.refusals import why_not
    from bird_server.settings import Settings

    os.environ["TZ"] = "UTC"  # what 'localtime' means in SQL must not depend on the machine
    time.tzset()
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    _raise_descriptor_limit()
    try:
        settings = Settings(**overrides)
        if host not in LOOPBACK and not insecure and Authenticator(settings).keyless:
            typer.echo(
                f"Listening on {host} without tokens would let anybody in. Set BIRD_ENV_RUN_TOKEN and "
                "BIRD_ENV_ADMIN_TOKEN, or say --insecure.",
                err=True,
            )
            return 2
        app = create_app(settings)
    except ValidationError as error:
        for each in error.errors():
            name = "BIRD_ENV_" + "_".join(str(part) for part in each["loc"]).upper()
            typer.echo(f"{name}: {each['msg']} (got {each['input']!r})", err=True)
        return 2
    except BirdEnvError as error:
        _explain(error)
        return 2
    try:
        listener = _listen(host, port)
    except (OSError, TypeError) as error:  # TypeError: the host is a text that no name server can be asked for
        typer.echo(f"Cannot listen on {host}:{port}: {_listen_fault(error)}", err=True)
        return 2
    with listener:
        try:
            _prepare(settings.data, ready_file)
        except OSError as error:
            typer.echo(str(why_not(error)), err=True)
            return 2
        try:
            code = _run(app, listener, host, ready_file)
        except BirdEnvError as error:
            _explain(error)
            code = 1
    parts: State | None = getattr(app.state, "parts", None)
    if parts is not None and parts.engine.unfinished():
        _end_now(code)
    return code


def _listen_fault(error: OSError | TypeError) -> str:
    """What is wrong with an address, and what to do about it."""
    if isinstance(error, TypeError | socket.gaierror):
        said = "this is no name of a host" if isinstance(error, TypeError) else error.strerror
        return f"{said}. --host takes an address of this machine, such as 127.0.0.1."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{error.strerror}. --host takes an address of this machine, such as 127.0.0.1 or 0.0.0.0."
    return f"{error.strerror}. --port 0 takes a free port."


def _prepare(data: Path, ready_file: Path | None) -> None:
    """Make the data directory, and find out before the start whether it and the ready file can be written.

    Raises:
        OSError: One cannot; `filename` says which.
    """
    import tempfile

    data.mkdir(parents=True, exist_ok=True)
    for folder in [data] if ready_file is None else [data, ready_file.parent]:
        try:
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(folder)) from error


def _end_now(code: int) -> NoReturn:
    """End the process although a thread of it is still in SQLite, which Python would wait for. All else is closed."""
    import logging
    import os
    import sys

    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _explain(error: BirdEnvError) -> None:
    typer.echo(f"{error}{f' {error.hint}' if error.hint else ''}", err=True)


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except BaseException:
        listener.close()
        raise
    return listener


def _run(app: FastAPI, listener: socket.socket, host: str, ready_file: Path | None) -> int:
    """Serve until a signal; the exit code."""
    import asyncio
    import contextlib
    import logging
    import os
    import signal
    from collections.abc import Generator

    import uvicorn

    port = listener.getsockname()[1]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    ready = json.dumps({"url": url, "host": host, "port": port, "pid": os.getpid()})

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Generator[None]:
            """uvicorn's own raises the signal again at the end, which would skip the clean-up and the exit code."""
            previous = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
            try:
                yield
            finally:
                for number, handler in previous.items():
                    signal.signal(number, handler)

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if not self.should_exit:
                logging.getLogger("bird_server").info("listening on %s", url)
                if ready_file is not None:
                    partial = ready_file.with_name(f".{ready_file.name}.{os.getpid()}")
                    partial.write_text(ready, "utf-8")
                    partial.replace(ready_file)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            """Nothing new is begun; who still waits near the end is answered before uvicorn cuts the connection."""
            parts: State = app.state.parts
            parts.close()
            asyncio.get_running_loop().call_later(ANSWER_S, parts.operations.answer_all)
            await super().shutdown(sockets)

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=SHUTDOWN_S,
        backlog=4096,
        server_header=False,
        lifespan="off",  # opened here, so that a failure to start is one line and not a traceback
    )
    server = Server(config)

    async def run() -> None:
        async with app.router.lifespan_context(app):
            await server.serve(sockets=[listener])

    try:
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(run())
    finally:
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)
    return 0 if server.started else 1


def _raise_descriptor_limit() -> None:
    """A replica takes two descriptors, a connection one: the soft limit is no reason to refuse them."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
