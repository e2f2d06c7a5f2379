"""`bird-env doctor`: what would go wrong on this machine, and how to mend it. See `bird_server.checkup`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bird_env.cli import requires_extra
from bird_server.commands._output import errors_told, megabytes, print_json, print_table

if TYPE_CHECKING:
    from bird_server.checkup import Checkup, Needs


def add(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    @requires_extra("server")
    def doctor(  # pyright: ignore[reportUnusedFunction]
        data: Annotated[
            Path | None,
            typer.Option(help="Data directory; default: $BIRD_ENV_DATA, else ./bird_env_data.", show_default=False),
        ] = None,
        size: Annotated[
            int | None, typer.Option(min=1, help="What so many live replicas would take here.", show_default=False)
        ] = None,
        template_mb: Annotated[float, typer.Option(min=0.001, help="Size of the template that they are of.")] = 500.0,
        as_json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
    ) -> None:
        """Try what a server needs on this machine. Exit code 1 when something would not work."""
        from bird_server.checkup import check_up
        from bird_server.datadir import data_directory

        with errors_told(as_json=as_json, kept="What was tried is removed."):
            found = check_up(data_directory(data), size=size, template_mb=template_mb)
        if as_json:
            print_json(document(found))
        else:
            tell(found)
        raise typer.Exit(0 if found.ok else 1)


def document(found: Checkup) -> dict[str, Any]:
    """What `--json` prints: `ok`, `versions`, `checks` (name, status, value, hint) and `needs` or null."""
    return {
        "ok": found.ok,
        "versions": found.versions,
        "checks": [asdict(finding) for finding in found.findings],
        "needs": None if found.needs is None else asdict(found.needs),
    }


def tell(found: Checkup) -> None:
    """The same for people."""
    rows = [(each.name, each.status, each.value, each.hint or "") for each in found.findings]
    print_table("bird-env doctor", ("check", "status", "found", "what to know or to do"), rows)
    if found.needs is not None:
        title = f"{found.needs.replicas:,} live replicas of a {megabytes(found.needs.template_bytes)} template"
        print_table(title, ("", "takes", "there is"), needs_rows(found.needs), right=("takes", "there is"))
    typer.echo("This machine will do." if found.ok else "Something here would not work: see `error` above.")


def needs_rows(needs: Needs) -> list[tuple[str, str, str]]:
    """The table of what is needed: name, needed, available."""
    links = "no limit known" if needs.links_per_copy is None else f"{needs.links_per_copy:,} a copy"
    return [
        ("open files", f"{needs.descriptors:,}", f"{needs.descriptors_available:,}"),
        ("memory", megabytes(needs.memory_bytes), megabytes(needs.memory_available_bytes)),
        ("disk", megabytes(needs.disk_bytes), megabytes(needs.disk_available_bytes)),
        ("hard links", f"{needs.replicas:,}", links),
        ("copies of the template", f"{needs.template_copies:,}", ""),
        ("as file copies it would be", megabytes(needs.copied_bytes), ""),
    ]
