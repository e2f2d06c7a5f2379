"""Which database files a path stands for, by the layouts that the benchmarks publish.

| layout | name |
|---|---|
| a file, whatever its suffix | its stem, without `_template` |
| `<db>/<db>_template.sqlite` (BIRD-CRITIC, SIX-GYM) | the folder's |
| `<db>/<db>.sqlite` (BIRD) | the folder's |
| a folder of such folders, or of files | as each of them |

Inside the folder of one database the official evaluator's order holds: `<db>_template.sqlite`, any other
`*_template.sqlite`, `<db>.sqlite`. Symbolic links are followed for the content, never for the name: caches of
downloads link readable names to hashes. Case is kept. The copies that the official evaluator leaves behind
(`*_ephemeral_1.sqlite`) are no databases of their own.

Leaves out: opening the files (`bird_snapshots`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bird_env.errors import DataError

SUFFIXES = (".sqlite", ".sqlite3", ".db")
_TEMPLATE = "_template"
_LEFT_BEHIND = re.compile(r"_ephemeral_\d+$")
#: Folders that archives bring along.
_NO_DATABASES = ("__MACOSX",)


@dataclass(frozen=True, slots=True)
class DatabaseFile:
    """A file that is to be a database, and the name it goes by."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """What a path stands for.

    Args:
        files: By name.
        skipped: Folders in it that hold no database, to be told of.
    """

    files: tuple[DatabaseFile, ...]
    skipped: tuple[Path, ...] = ()


def find_databases(path: Path) -> FoundFiles:
    """Every database that a file or folder stands for.

    Raises:
        DataError: There is none.
    """
    absolute = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links, and the name is the link's
    if absolute.is_file():
        return FoundFiles((DatabaseFile(_name_of(absolute), absolute),))
    if not absolute.is_dir():
        raise DataError(f"{path} does not exist" if not absolute.exists() else f"{path} is neither file nor folder")
    one = _exact(absolute, absolute.name)
    if one is not None:
        return FoundFiles((DatabaseFile(absolute.name, one),))
    files: dict[str, DatabaseFile] = {}
    skipped: list[Path] = []
    for entry in sorted(absolute.iterdir()):
        if entry.name.startswith(".") or entry.name in _NO_DATABASES:
            continue
        if entry.is_dir():
            inside = _inside(entry, entry.name)
            if inside is None:
                skipped.append(entry)
            else:
                files[entry.name] = DatabaseFile(entry.name, inside)
        elif entry.suffix in SUFFIXES and not _LEFT_BEHIND.search(entry.stem):
            name = _name_of(entry)
            if name not in files or entry.stem.endswith(_TEMPLATE):
                files[name] = DatabaseFile(name, entry)
    if not files:
        raise DataError(
            f"{path} holds no database",
            hint="Expected <db>/<db>_template.sqlite, <db>/<db>.sqlite, or files ending in .sqlite, .sqlite3 or .db.",
        )
    return FoundFiles(tuple(files[name] for name in sorted(files)), tuple(skipped))


def locate_database(source: Path, name: str) -> Path | None:
    """The file of one database in a folder of databases, in the folder of that database, or the file itself.

    Raises:
        DataError: There is neither folder nor file.
    """
    if not source.exists():
        raise DataError(f"{source} does not exist", hint="Expected a folder of <db>/<db>_template.sqlite.")
    if source.is_file():
        return source if _name_of(source) == name else None
    if "/" in name or "\0" in name or name in ("", ".", ".."):
        return None
    return _inside(source / name, name) or _exact(source, name)


def _inside(folder: Path, name: str) -> Path | None:
    """The file of this database in a folder that holds nothing else."""
    named = _first_file(folder / f"{name}{_TEMPLATE}{suffix}" for suffix in SUFFIXES)
    others = sorted(folder.glob(f"*{_TEMPLATE}.sqlite")) if folder.is_dir() else []
    return named or _first_file(others) or _exact(folder, name)


def _exact(folder: Path, name: str) -> Path | None:
    stems = (f"{name}{_TEMPLATE}", name)
    return _first_file(folder / f"{stem}{suffix}" for stem in stems for suffix in SUFFIXES)


def _first_file(candidates: Iterable[Path]) -> Path | None:
    return next((path for path in candidates if path.is_file()), None)


def _name_of(path: Path) -> str:
    return path.stem.removesuffix(_TEMPLATE) or path.stem
