"""`bird-env score`: a file of predictions scored officially, without a server."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bird_env.cli import requires_extra


class ScoreMode(StrEnum):
    PRED = "pred"
    GOLD = "gold"


def add(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    @requires_extra("server")
    def score(  # pyright: ignore[reportUnusedFunction]
        tasks: Annotated[Path, typer.Option(help="Tasks as published: JSON, JSON Lines or Parquet.")],
        databases: Annotated[Path, typer.Option(help="Folder of <db>/<db>_template.sqlite, or a data directory.")],
        out: Annotated[Path, typer.Option(help="Folder for report.txt and verdicts.jsonl; a second run resumes.")],
        predictions: Annotated[
            Path | None,
            typer.Option(help='Lines of {"instance_id": …, "pred_sqls": […]}; not needed with --mode gold.'),
        ] = None,
        mode: Annotated[ScoreMode, typer.Option(help="gold judges the tasks' own solutions.")] = ScoreMode.PRED,
        gold: Annotated[Path | None, typer.Option(help="Gold and tests, merged in by instance_id.")] = None,
        workers: Annotated[int | None, typer.Option(min=1, help="Scorings at once; by default one a core.")] = None,
        limit_s: Annotated[float, typer.Option(min=0.1, help="Seconds a scoring may take; 180 is official.")] = 180.0,
        as_json: Annotated[bool, typer.Option("--json", help="The summary as JSON on standard output.")] = False,
    ) -> None:
        """Score predictions as BIRD-CRITIC does; no server is needed.

        A task without a prediction counts as failed. Exit code 2 when a task could not be scored (no gold, no database,
        a fault of the scorer), or when the input cannot be used.
        """
        raise typer.Exit(
            _score(tasks, databases, out, predictions, mode, gold, workers=workers, limit_s=limit_s, as_json=as_json)
        )


def _score(
    tasks: Path,
    databases: Path,
    out: Path,
    predictions: Path | None,
    mode: ScoreMode,
    gold: Path | None,
    *,
    workers: int | None,
    limit_s: float,
    as_json: bool,
) -> int:
    import asyncio
    import json

    from bird_env.errors import BirdEnvError
    from bird_server.commands._progress import progress_bar
    from bird_server.scoring.whole_file import Request, score_whole_file

    if mode is ScoreMode.PRED and predictions is None:
        typer.echo("--predictions is needed, unless --mode gold judges the tasks' own solutions.", err=True)
        return 2
    request = Request(tasks, databases, out, predictions, gold, mode.value, limit_s, workers)
    try:
        report = asyncio.run(score_whole_file(request, progress_bar))
    except BirdEnvError as error:
        typer.echo(f"{error.detail}{f' {error.hint}' if error.hint else ''}", err=True)
        return 2
    if as_json:
        typer.echo(json.dumps({**report.as_dict(), "out": str(out)}))
    else:
        typer.echo(report.summary())
        typer.echo(str(out / "report.txt"))
    for each in report.unscored:
        typer.echo(f"not scored: {each.instance_id}: {each.reason}", err=True)
    for problem in report.problems:
        typer.echo(f"problem: {problem}", err=True)
    return 2 if report.unscored or report.dropped else 0
