"""A server as a process of its own, for the demo, the benchmarks and tests that kill it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from bird_env.errors import ServerUnreachable

START_S = 60.0
#: Longer than the server takes after SIGTERM (10 s), so that a kill is the last resort.
STOP_S = 20.0
POLL_S = 0.02


class ServerProcess:
    """`bird-env serve` on a free port, started on entry and ended by its own pid on exit.

    Args:
        data: Data directory.
        environment: Settings as `BIRD_ENV_…` variables. Those of this process are not handed on: a demonstration must
            not meet the ledger or the tokens of a server that somebody runs.
        arguments: Further flags of `serve`.

    Raises:
        ServerUnreachable: It did not come up; the detail has the end of its log.
    """

    def __init__(
        self, data: Path, *, environment: Mapping[str, str] | None = None, arguments: tuple[str, ...] = ()
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="bird-env-server-")
        folder = Path(self._folder.name)
        self.log_path = folder / "server.log"
        self.ready_file = folder / "ready.json"
        self._command = [
            *(sys.executable, "-m", "bird_env", "serve", "--data", str(data), "--port", "0"),
            *("--ready-file", str(self.ready_file), "--log-level", "warning", *arguments),
        ]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("BIRD_ENV_")}
        self._environment = {**inherited, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerUnreachable("The server is not running.")
        return self._process.pid

    def __enter__(self) -> Self:
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment
            )
        deadline = time.monotonic() + START_S
        while not self.ready_file.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                tail = self.log_path.read_text("utf-8", "replace")[-2_000:]
                self._folder.cleanup()
                raise ServerUnreachable(f"The server did not come up:\n{tail}")
            time.sleep(POLL_S)
        self.url = json.loads(self.ready_file.read_text("utf-8"))["url"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        self._folder.cleanup()

    def stop(self) -> int:
        """End it as an operator would, by force if it does not listen; returns its exit code."""
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        return self._process.wait()

    def kill(self) -> None:
        """kill -9, as the machine would."""
        os.kill(self.pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
