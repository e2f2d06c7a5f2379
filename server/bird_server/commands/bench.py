"""`bird-env bench …`: the project's own measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bird_env.cli import requires_extra


def add(app: typer.Typer) -> None:
    """Add the group of benchmarks."""
    bench = typer.Typer(help="Measure the product against the obvious alternative, in one run.", no_args_is_help=True)
    app.add_typer(bench, name="bench")

    @bench.callback()
    def group() -> None:  # pyright: ignore[reportUnusedFunction]
        """A callback keeps `bench` a group while it has a single benchmark."""

    @bench.command()
    @requires_extra("server")
    def replicas(  # pyright: ignore[reportUnusedFunction]
        count: Annotated[int, typer.Option("--replicas", min=1, help="Trajectories live at once.")] = 1_024,
        template_mb: Annotated[float, typer.Option(min=0.1, help="Size of the generated template.")] = 500.0,
        rows_changed: Annotated[int, typer.Option(min=1, help="Rows that each trajectory updates.")] = 10,
        folder: Annotated[
            Path | None, typer.Option(help="Where to measure: its filesystem matters. Default: the working directory.")
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
    ) -> None:
        """Many live replicas of one large template, against copies of its file."""
        import json
        import tempfile
        from dataclasses import asdict

        from rich.console import Console
        from rich.table import Table

        from bird_server.benches.replicas import run
        from bird_server.commands._output import errors_told

        errors = Console(stderr=True)
        with (
            errors_told(as_json=as_json, kept="Its files are removed; the same command again begins anew."),
            tempfile.TemporaryDirectory(prefix="bird-env-bench-", dir=folder or Path.cwd()) as scratch,
            errors.status("starting") as status,
        ):
            report = run(
                Path(scratch),
                template_mb=template_mb,
                replicas=count,
                rows_changed=rows_changed,
                progress=status.update,
            )
        if as_json:
            typer.echo(json.dumps(asdict(report)))
        else:
            table = Table(title=f"{report.replicas} live replicas of a {report.template_mb:g} MB template")
            table.add_column("figure")
            table.add_column("value", justify="right")
            for name, value in asdict(report).items():
                table.add_row(name, f"{value:,}" if isinstance(value, int | float) else str(value))
            Console().print(table)
        if not report.template_unchanged:
            errors.print("[red]The template has changed: this must never happen.[/red]")
            raise typer.Exit(1)
