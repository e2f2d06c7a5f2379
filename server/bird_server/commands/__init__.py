"""Commands that need the server extra, joined to `bird-env` through the entry-point group `bird_env.commands`.

One module a command. A module imports nothing heavy at its top: `bird-env --help` loads them all.
"""

from __future__ import annotations

import typer

from bird_server.commands import bench, conformance, databases, demo, doctor, score, serve, tasks


def register(app: typer.Typer) -> None:
    """Add every command of the service to the command line."""
    for command in (serve, demo, databases, tasks, score, conformance, bench, doctor):
        command.add(app)
