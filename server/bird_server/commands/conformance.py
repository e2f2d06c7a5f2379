"""`bird-env conformance CASES.jsonl`: whether this installation scores as the official evaluator does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bird_env.cli import requires_extra


def add(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    @requires_extra("server")
    def conformance(  # pyright: ignore[reportUnusedFunction]
        cases: Annotated[Path, typer.Argument(help="Cases with official verdicts, one JSON object a line.")],
        as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
        workers: Annotated[int | None, typer.Option(min=1, help="Scorings at once; by default one a core.")] = None,
    ) -> None:
        """Score cases whose official verdicts are known and print each field that differs; last, `N of M`.

        The databases are built from the files of SQL beside the cases. Exit code 1 on any mismatch, 2 on unusable
        input.
        """
        from bird_server.commands._output import errors_told

        with errors_told(as_json=as_json, kept="Nothing is kept: the same command again begins anew."):
            code = _conformance(cases, as_json=as_json, workers=workers)
        raise typer.Exit(code)


def _conformance(path: Path, *, as_json: bool, workers: int | None) -> int:
    import asyncio
    import json
    import tempfile
    from dataclasses import asdict

    from bird_server.commands._progress import progress_bar
    from bird_server.scoring.conformance import Case, Mismatch, read_cases, run_cases
    from bird_server.scoring.pool import ScorerPool

    async def run(cases: list[Case]) -> tuple[list[Mismatch], dict[str, str]]:
        async with ScorerPool(children=workers) as pool:
            with progress_bar("conformance", len(cases)) as advance:
                return await run_cases(cases, pool, on_case=lambda _: advance(1)), pool.versions

    with tempfile.TemporaryDirectory(prefix="bird-conformance-") as folder:
        cases = read_cases(path, Path(folder))
        mismatches, versions = asyncio.run(run(cases))
    matched = len(cases) - len({mismatch.id for mismatch in mismatches})
    if as_json:
        told = [asdict(mismatch) for mismatch in mismatches]
        typer.echo(json.dumps({"matched": matched, "total": len(cases), "mismatches": told, "versions": versions}))
    else:
        for mismatch in mismatches:
            typer.echo(str(mismatch))
        typer.echo(f"{matched} of {len(cases)}")
    return 1 if mismatches else 0
