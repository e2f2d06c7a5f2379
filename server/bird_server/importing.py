"""Database files into a data directory: each is published as a template, and its name goes into the catalogue.

A file that cannot become a template is told of with its reason and its hint, and the rest is imported. A name that
stood for another template stands for the new one from then on; what runs on the former goes on with it, because the
former stays in the store until `remove_unused` finds that no name and no replica needs it.

Leaves out: finding files (`database_files`), what makes a file a template (`bird_snapshots`), tasks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bird_env.errors import BirdEnvError, DataError
from bird_server.catalogue import Catalogue, Database, check_database_name
from bird_server.database_files import DatabaseFile
from bird_server.engine.errors import translate
from bird_server.refusals import Refused, why
from bird_snapshots.errors import SnapshotError, TemplateInUse
from bird_snapshots.template import TemplateStore


@dataclass(frozen=True, slots=True)
class Imported:
    """What came of one file.

    Args:
        database: As it stands in the catalogue now; None where the file was refused.
        replaced: What the name stood for before, where that was another template.
        refused: Why the file could not be imported.
    """

    name: str
    path: Path
    database: Database | None = None
    replaced: Database | None = None
    refused: Refused | None = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """What came of one template that no name stands for: removed, or why it stays."""

    digest: str
    refused: Refused | None = None


def import_databases(
    files: Iterable[DatabaseFile], catalogue: Catalogue, templates: TemplateStore
) -> Iterator[Imported]:
    """Import files one by one, each outcome as it comes. Of two files with one name the first is taken."""
    taken: dict[str, Path] = {}
    for file in files:
        if file.name in taken:
            reason = f"the name {file.name!r} is taken by {taken[file.name]}"
            refused = Refused("name_taken", reason, "Import it alone, with --name.")
            yield Imported(file.name, file.path, refused=refused)
            continue
        taken[file.name] = file.path
        try:
            database, replaced = _import(file, catalogue, templates)
            yield Imported(file.name, file.path, database, replaced)
        except (BirdEnvError, SnapshotError) as error:
            yield Imported(file.name, file.path, refused=why(error))


def import_database(file: DatabaseFile, catalogue: Catalogue, templates: TemplateStore) -> Database:
    """Import one file that must be a database.

    Raises:
        DataError: It is none, or its name cannot be one.
        ServiceError: The store could not take it.
    """
    try:
        return _import(file, catalogue, templates)[0]
    except SnapshotError as error:
        raise translate(error) from error


def remove_unused(
    catalogue: Catalogue, templates: TemplateStore, *, among: Collection[str] | None = None
) -> Iterator[Dropped]:
    """Remove the templates that no name stands for; those with live replicas stay.

    Args:
        among: Only templates of these digests; by default all of the store. An import that runs at the same time has
            templates that have no name yet: look at all of them only when none runs.
    """
    named = {database.digest for database in catalogue.databases()}
    for template in templates.list():
        if template.digest in named or (among is not None and template.digest not in among):
            continue
        try:
            templates.remove(template.digest)
        except TemplateInUse as error:
            yield Dropped(template.digest, why(error))
        else:
            yield Dropped(template.digest)


def _import(file: DatabaseFile, catalogue: Catalogue, templates: TemplateStore) -> tuple[Database, Database | None]:
    """The database as it stands now, and what its name stood for before."""
    check_database_name(file.name)
    template = templates.publish(file.path)
    before = catalogue.add_database(
        file.name,
        digest=template.digest,
        size_bytes=template.size_bytes,
        page_size=template.page_size,
        tables=len(templates.schema(template.digest)),
        source=str(file.path),
    )
    found = catalogue.database(file.name)
    if found is None:
        raise DataError(f"{file.name!r} was taken out of the catalogue while it was imported")
    return found, before
