"""The databases that a scoring run needs, as immutable templates: from the benchmark's layout or a data directory.

Files of the benchmark (`<db>/<db>_template.sqlite`, `<db>/<db>.sqlite`) are published into a template store of the run,
so that a scoring sees the very bytes that the service would give to a trajectory; of a data directory of the service,
its own templates are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bird_env.errors import DataError
from bird_server.catalogue import FILE_NAME as CATALOGUE
from bird_server.catalogue import Catalogue
from bird_server.database_files import find_databases, locate_database
from bird_server.datadir import DataDirectory
from bird_server.scoring.runner import DatabaseFile
from bird_snapshots.errors import SnapshotError
from bird_snapshots.template import TemplateStore


@dataclass(slots=True)
class Databases:
    """What was found, by name, and why the rest was not."""

    found: dict[str, DatabaseFile] = field(default_factory=dict[str, DatabaseFile])
    absent: dict[str, str] = field(default_factory=dict[str, str])


def collect(
    source: Path, names: Iterable[str], store: Path, *, on_database: Callable[[], None] = lambda: None
) -> Databases:
    """The databases of these names.

    Args:
        source: A folder in the benchmark's layout, one database file, or a data directory of the service.
        store: An empty folder for the templates that are published.

    Raises:
        DataError: `source` does not exist.
    """
    if not source.exists():
        raise DataError(
            f"{source} does not exist", hint="Expected a folder of databases, as <db>/<db>_template.sqlite."
        )
    find = _from_data_directory(source) if (source / CATALOGUE).is_file() else _from_files(source, store)
    databases = Databases()
    for name in sorted(set(names)):
        try:
            databases.found[name] = find(name)
        except DataError as error:
            databases.absent[name] = error.detail
        except SnapshotError as error:
            databases.absent[name] = f"the database {name!r} cannot be used: {error}"
        on_database()
    return databases


def _from_files(source: Path, store: Path) -> Callable[[str], DatabaseFile]:
    templates = TemplateStore(store)

    def find(name: str) -> DatabaseFile:
        if source.is_file():
            path = next((file.path for file in find_databases(source).files if file.name == name), None)
        else:
            path = locate_database(source, name)
        if path is None:
            raise DataError(f"there is no database {name!r} in {source}")
        template = templates.publish(path)
        return DatabaseFile(template.path, template.digest)

    return find


def _from_data_directory(source: Path) -> Callable[[str], DatabaseFile]:
    directory = DataDirectory(source)
    templates = TemplateStore(directory.store)

    def find(name: str) -> DatabaseFile:
        with Catalogue(source) as catalogue:
            database = catalogue.database(name)
        if database is None:
            raise DataError(f"there is no database {name!r} in the data directory {source}")
        template = templates.get(database.digest)
        return DatabaseFile(template.path, template.digest)

    return find
