"""The `bird-env` command: what needs only the base install is here, the rest joins through entry points.

`bird_env` never imports the service. Commands that need it (`serve`, `score`, …) are declared by the distribution in
the entry-point group `bird_env.commands`; each names a function that adds its commands to the Typer application.
"""

from __future__ import annotations

from importlib.metadata import entry_points

import typer

from bird_env.cli._extras import requires_extra
from bird_env.cli._faults import INTERRUPTED, UNUSABLE, Commands, shown, tell

__all__ = ["INTERRUPTED", "UNUSABLE", "build", "main", "requires_extra", "shown", "tell"]

ENTRY_POINT_GROUP = "bird_env.commands"


def build() -> typer.Typer:
    """The whole command line, with every command that the installed distribution declares."""
    app = typer.Typer(
        name="bird-env",
        cls=Commands,
        help="A private SQLite database for every RL trajectory, scored as BIRD-CRITIC scores.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def root() -> None:  # pyright: ignore[reportUnusedFunction]
        """A callback makes Typer treat every command as a subcommand, even a single one."""

    for entry in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda found: found.name):
        entry.load()(app)
    return app


def main() -> None:
    """Console script `bird-env`."""
    build()()
