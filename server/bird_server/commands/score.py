"""`bird-env score`: a file of predictions scored officially, without a server."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bird_env.cli import UNUSABLE, requires_extra, tell


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
        a fault of the scorer), or when the input cannot be used. After Ctrl-C the same command goes on where it was.
        """
        from bird_server.commands._output import errors_told

        with errors_told(as_json=as_json, kept=lambda: _kept(out)):
            code = _score(
                *(tasks, databases, out, predictions, mode, gold), workers=workers, limit_s=limit_s, as_json=as_json
            )
        raise typer.Exit(code)


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

    from bird_server.commands._output import remark_some
    from bird_server.commands._progress import progress_bar
    from bird_server.scoring.whole_file import Request, score_whole_file

    if mode is ScoreMode.PRED and predictions is None:
        detail = "--predictions is needed, unless --mode gold judges the tasks' own solutions."
        tell("usage", detail, as_json=as_json)
        return UNUSABLE
    request = Request(tasks, databases, out, predictions, gold, mode.value, limit_s, workers)
    report = asyncio.run(score_whole_file(request, progress_bar))
    if as_json:
        typer.echo(json.dumps({**report.as_dict(), "out": str(out)}))
    else:
        typer.echo(report.summary())
        typer.echo(str(out / "report.txt"))
    rest = f"{out / 'report.txt'} has them all"
    remark_some([f"not scored: {each.instance_id}: {each.reason}" for each in report.unscored], rest)
    remark_some([f"problem: {problem}" for problem in report.problems], rest)
    return UNUSABLE if report.unscored or report.dropped else 0


def _kept(out: Path) -> str:
    """What an interrupted run leaves."""
    from bird_server.scoring.verdict_log import FILE_NAME

    verdicts = out / FILE_NAME
    if not verdicts.is_file() or not verdicts.stat().st_size:
        return "Nothing was scored yet: run the same command again."
    return f"The verdicts so far are kept in {verdicts}: run the same command again to go on from there."
