"""`bird-env databases …`: the databases of a data directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bird_env.cli import UNUSABLE, requires_extra, tell
from bird_server.commands._output import errors_told, megabytes, print_json, print_table, remark, remark_some

if TYPE_CHECKING:
    from bird_server.catalogue import Database
    from bird_server.database_files import FoundFiles
    from bird_server.importing import Imported
    from bird_server.refusals import Refused

DataOption = Annotated[
    Path | None, typer.Option(help="Data directory; default: $BIRD_ENV_DATA, else ./bird_env_data.", show_default=False)
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]

#: What is said of a database file without a byte in it.
EMPTY = "the file has 0 bytes: an empty database"


def add(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(help="Import, list, verify and remove databases.", no_args_is_help=True)
    app.add_typer(group, name="databases")

    @group.command("import")
    @requires_extra("server")
    def import_(  # pyright: ignore[reportUnusedFunction]
        paths: Annotated[
            list[Path],
            typer.Argument(help="Files, folders <db>/<db>_template.sqlite or <db>/<db>.sqlite, or folders of these."),
        ],
        name: Annotated[
            str | None, typer.Option(help="The name, instead of the file's; for a single database.")
        ] = None,
        data: DataOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Publish database files as templates. Exit code 1 when a path or a file was refused; the rest is imported."""
        kept = "What was imported stays; the same command again imports the rest."
        with errors_told(as_json=as_json, kept=kept):
            code = _import(paths, name, data, as_json=as_json)
        raise typer.Exit(code)

    @group.command("list")
    @requires_extra("server")
    def list_(data: DataOption = None, as_json: JsonOption = False) -> None:  # pyright: ignore[reportUnusedFunction]
        """List the databases, with how many tasks are on each."""
        with errors_told(as_json=as_json):
            _list(data, as_json=as_json)

    @group.command()
    @requires_extra("server")
    def verify(  # pyright: ignore[reportUnusedFunction]
        names: Annotated[list[str] | None, typer.Argument(help="Which; default: all.")] = None,
        data: DataOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Read every template again and compare it with its sha256. Exit code 1 when one differs."""
        with errors_told(as_json=as_json):
            code = _verify(names or [], data, as_json=as_json)
        raise typer.Exit(code)

    @group.command()
    @requires_extra("server")
    def remove(  # pyright: ignore[reportUnusedFunction]
        names: Annotated[list[str] | None, typer.Argument(help="Databases to forget.")] = None,
        with_tasks: Annotated[bool, typer.Option("--with-tasks", help="The tasks on them too.")] = False,
        unused: Annotated[
            bool, typer.Option("--unused", help="Every template that no database stands for; not while importing.")
        ] = False,
        data: DataOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Forget databases, and remove their templates where no other database stands for them.

        A template with live replicas stays, and so does the former template of a database that was imported anew;
        `--unused` removes such later.
        """
        if not names and not unused:
            tell("usage", "Name a database, or say --unused.", as_json=as_json)
            raise typer.Exit(UNUSABLE)
        kept = "What is already removed stays so; `bird-env databases list` shows what is left."
        with errors_told(as_json=as_json, kept=kept):
            _remove(names or [], data, with_tasks=with_tasks, unused=unused, as_json=as_json)


def _import(paths: list[Path], name: str | None, data: Path | None, *, as_json: bool) -> int:
    from bird_env.errors import DataError
    from bird_server.database_files import DatabaseFile, FoundFiles

    found, refused = _find(paths)
    files = [file for one in found for file in one.files]
    if name is not None:
        if len(files) + len(refused) != 1:
            raise DataError(f"--name is for one database, and here are {len(files) + len(refused)}")
        found = [FoundFiles((DatabaseFile(name, file.path),)) for file in files]
    outcomes = [*refused, *(publish(found, data) if files else [])]
    report = import_report(outcomes, found)
    if as_json:
        print_json(report)
    else:
        tell_import(outcomes, found)
    return 1 if report["failed"] else 0


def _find(paths: Sequence[Path]) -> tuple[list[FoundFiles], list[Imported]]:
    """What the paths stand for, and the paths that stand for nothing.

    Raises:
        DataError: None of them stands for anything.
    """
    from bird_env.errors import DataError
    from bird_server.database_files import SUFFIXES, find_databases
    from bird_server.importing import Imported
    from bird_server.refusals import Refused, refusal

    found: list[FoundFiles] = []
    refused: list[Imported] = []
    for path in paths:
        try:
            one = find_databases(path)
        except (DataError, OSError) as error:
            refused.append(Imported(path.name or str(path), path, refused=refusal(error)))
            continue
        if path.is_file() and path.suffix not in SUFFIXES and is_empty(path):
            message = f"{path} is empty (0 bytes), and its name does not say that it is a database"
            hint = "SQLite takes an empty file for an empty database: name it *.sqlite, *.sqlite3 or *.db if it is one."
            refused.append(Imported(path.name, path, refused=Refused("empty_file", message, hint)))
            continue
        found.append(one)
    reasons = [each.refused for each in refused if each.refused is not None]
    if not found:
        raise DataError("; ".join(reason.message.rstrip(".") for reason in reasons), hint=reasons[0].hint)
    return found, refused


def publish(found: Sequence[FoundFiles], data: Path | None) -> list[Imported]:
    """Import what was found, with a progress bar."""
    from bird_server.catalogue import Catalogue
    from bird_server.commands._progress import progress_bar
    from bird_server.datadir import data_directory
    from bird_server.importing import import_databases
    from bird_snapshots.template import TemplateStore

    directory = data_directory(data)
    files = [file for one in found for file in one.files]
    outcomes: list[Imported] = []
    with Catalogue(directory.root) as catalogue, progress_bar("databases", len(files)) as advance:
        for outcome in import_databases(files, catalogue, TemplateStore(directory.store)):
            outcomes.append(outcome)
            advance(1)
    return outcomes


def import_report(outcomes: Sequence[Imported], found: Sequence[FoundFiles]) -> dict[str, Any]:
    """What an import did, for programs."""
    return {
        "imported": [
            {
                **_database(outcome.database),
                "replaced_sha256": outcome.replaced.digest if outcome.replaced is not None else None,
                "remark": EMPTY if is_empty(outcome.path) else None,
            }
            for outcome in outcomes
            if outcome.database is not None
        ],
        "failed": [
            {"database": outcome.name, "source": str(outcome.path), **_refused(outcome.refused)}
            for outcome in outcomes
            if outcome.refused is not None
        ],
        "skipped": [str(path) for one in found for path in one.skipped],
    }


def tell_import(outcomes: Sequence[Imported], found: Sequence[FoundFiles]) -> None:
    """What an import did, for people."""
    imported = [outcome.database for outcome in outcomes if outcome.database is not None]
    if imported:
        _table(f"{len(imported)} databases imported", imported)
    rest = "--json has them all"
    for outcome in outcomes:
        if outcome.database is not None and is_empty(outcome.path):
            remark(f"{outcome.name}: {EMPTY}")
    replaced = [(one.name, one.replaced.digest[:12]) for one in outcomes if one.replaced is not None]
    remark_some([f"{name}: stood for template {digest} before" for name, digest in replaced], rest)
    remark_some([f"{one.name}: not imported: {one.refused}" for one in outcomes if one.refused is not None], rest)
    remark_some([f"{path}: holds no database" for one in found for path in one.skipped], rest)


def is_empty(path: Path) -> bool:
    """Whether a file has 0 bytes; one that is gone meanwhile has no size."""
    try:
        return path.stat().st_size == 0
    except OSError:
        return False


def _list(data: Path | None, *, as_json: bool) -> None:
    from bird_server.catalogue import Catalogue
    from bird_server.datadir import data_directory

    with Catalogue(data_directory(data).root, make=False) as catalogue:
        databases = catalogue.databases()
        tasks = catalogue.databases_of_tasks()
    if as_json:
        print_json({"databases": [{**_database(one), "tasks": tasks.get(one.name, 0)} for one in databases]})
        return
    _table(f"{len(databases)} databases", databases, tasks)
    for name in sorted(set(tasks) - {database.name for database in databases}):
        remark(f"{name}: {tasks[name]} tasks are on it, but it was not imported")


def _verify(names: list[str], data: Path | None, *, as_json: bool) -> int:
    from bird_env.errors import UnknownDatabase
    from bird_server.catalogue import Catalogue
    from bird_server.commands._progress import progress_bar
    from bird_server.datadir import data_directory
    from bird_server.refusals import why
    from bird_snapshots.errors import SnapshotError
    from bird_snapshots.template import TemplateStore

    directory = data_directory(data)
    with Catalogue(directory.root, make=False) as catalogue:
        databases = {database.name: database for database in catalogue.databases()}
    for name in names:
        if name not in databases:
            raise UnknownDatabase(f"There is no database {name!r}.", hint="`bird-env databases list` shows them.")
    templates = TemplateStore(directory.store)
    sound: list[str] = []
    damaged: list[tuple[Database, Refused]] = []
    with progress_bar("templates", len(names or databases)) as advance:
        for name in names or databases:
            try:
                templates.verify(databases[name].digest)
            except SnapshotError as error:
                damaged.append((databases[name], why(error)))
            else:
                sound.append(name)
            advance(1)
    if as_json:
        told = [{"database": one.name, "sha256": one.digest, **_refused(refused)} for one, refused in damaged]
        print_json({"verified": sound, "damaged": told})
    else:
        for one, refused in damaged:
            remark(f"{one.name}: {refused}")
        typer.echo(f"{len(sound)} of {len(sound) + len(damaged)} templates are as they were published")
    return 1 if damaged else 0


def _remove(names: list[str], data: Path | None, *, with_tasks: bool, unused: bool, as_json: bool) -> None:
    from bird_server.catalogue import Catalogue
    from bird_server.datadir import data_directory
    from bird_server.importing import remove_unused
    from bird_snapshots.template import TemplateStore

    directory = data_directory(data)
    with Catalogue(directory.root, make=False) as catalogue:
        digests = {catalogue.remove_database(name, with_tasks=with_tasks).digest for name in names}
        templates = TemplateStore(directory.store)
        dropped = list(remove_unused(catalogue, templates, among=None if unused else digests))
    gone = [one.digest for one in dropped if one.refused is None]
    kept = [{"sha256": one.digest, **_refused(one.refused)} for one in dropped if one.refused is not None]
    if as_json:
        print_json({"removed": names, "templates_removed": gone, "templates_kept": kept})
        return
    typer.echo(f"{len(names)} databases forgotten, {len(gone)} templates removed")
    for one in kept:
        remark(f"template {one['sha256'][:12]} stays: {one['message']}")


def _table(title: str, databases: Sequence[Database], tasks: dict[str, int] | None = None) -> None:
    columns = ["database", "size", "page", "tables", "sha256"]
    rows: list[list[object]] = []
    for one in databases:
        row: list[object] = [one.name, megabytes(one.size_bytes), one.page_size, one.tables, one.digest[:12]]
        rows.append(row if tasks is None else [*row, tasks.get(one.name, 0)])
    print_table(
        title, columns if tasks is None else [*columns, "tasks"], rows, right=("size", "page", "tables", "tasks")
    )


def _database(database: Database) -> dict[str, Any]:
    return {**database.info().model_dump(mode="json"), "source": database.source}


def _refused(refused: Refused) -> dict[str, Any]:
    return {"code": refused.code, "message": refused.message, "hint": refused.hint}
