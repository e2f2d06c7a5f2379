"""`bird-env demo`: the product at work, in one command and under half a minute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bird_env.cli import requires_extra

if TYPE_CHECKING:
    from bird_server.demo import DemoReport


def add(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    @requires_extra("server")
    def demo(  # pyright: ignore[reportUnusedFunction]
        trajectories: Annotated[int, typer.Option(min=1, max=2_048, help="Trajectories at once.")] = 64,
        as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Start the real server on a free port and play a scripted policy on a sample database of its own.

        Some scripts are right, some wrong, some broken, some run away; each knows what it must get. Exit code 1 when
        anything came otherwise, 2 when the server did not come up. Nothing is left behind.
        """
        raise typer.Exit(_demo(trajectories, as_json=as_json))


def _demo(trajectories: int, *, as_json: bool) -> int:
    import tempfile
    from dataclasses import asdict
    from pathlib import Path

    from rich.console import Console

    from bird_server.commands._output import errors_told, print_json, remark
    from bird_server.demo import run

    with (
        errors_told(as_json=as_json, kept="The demonstration's server is stopped and its files are removed."),
        tempfile.TemporaryDirectory(prefix="bird-env-demo-") as folder,
        Console(stderr=True).status("starting") as status,
    ):
        report = run(Path(folder), trajectories=trajectories, progress=status.update)
    if as_json:
        print_json({**asdict(report), "ok": report.ok})
    else:
        _print(report)
    for surprise in report.surprises:
        remark(f"NOT AS EXPECTED: {surprise}")
    return 0 if report.ok else 1


def _print(report: DemoReport) -> None:
    from bird_server.commands._output import megabytes, print_table

    columns = ("", "trajectories", "succeeded", "must succeed", "steps")
    for title, lines in (("Success by category", report.categories), ("Success by script", report.scripts)):
        rows = [(line.name, line.trajectories, line.succeeded, line.expected, line.steps) for line in lines]
        print_table(title, columns, rows, right=columns[1:])
    unchanged = report.template_sha256_before == report.template_sha256_after
    figures = [
        ("live at once", f"{report.live_at_once} trajectories of {report.tasks} tasks"),
        ("steps", f"{report.steps} in {report.elapsed_s} s: {report.steps_per_s} a second"),
        ("a statement, all at once", _latency(report.execute_ms_p50, report.execute_ms_p99)),
        ("  of it in the engine", _latency(report.engine_ms_p50, None)),
        ("a runaway, stopped", _latency(report.stopped_ms_p50, None)),
        ("a submission, scored", _latency(report.submit_ms_p50, report.submit_ms_p99)),
        ("replicas served", str(report.replicas_served)),
        ("disk beyond the template", f"{megabytes(report.disk_bytes)}; a copy each: {megabytes(report.copies_bytes)}"),
        ("template", f"{report.template_sha256_before[:16]}… {'byte-identical' if unchanged else 'CHANGED'}"),
    ]
    print_table("The run", ("figure", "value"), figures)


def _latency(p50: float | None, p99: float | None) -> str:
    parts = [f"{name} {value:,.1f} ms" for name, value in (("p50", p50), ("p99", p99)) if value is not None]
    return ", ".join(parts) or "none"
