"""Templates: immutable database files under the sha256 of their bytes, and the hard links that replicas are made of.

On disk, under the root of a store: `templates/<sha256>.db`, and `templates/<sha256>.<n>.db` for further copies of the
same bytes, made when the filesystem's links of one inode are used up (ext4: 65,000). A template appears whole, by a
rename, and is never opened for writing afterwards. No list is kept beside the files: the directory is the list.

Usable without owning the store: publishing works in a folder of its own under `tmp/`, locked while it is used.
"""

from __future__ import annotations

import builtins
import errno
import os
import re
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import apsw

from bird_snapshots.connect import open_source
from bird_snapshots.errors import (
    TemplateDamaged,
    TemplateInUse,
    TemplateMissing,
    from_oserror,
    translated,
)
from bird_snapshots.files import OS_FILES, FileOps
from bird_snapshots.format import HEADER_BYTES, FormatError, parse_database_header
from bird_snapshots.schema import SchemaObject, read_schema
from bird_snapshots.source import stage
from bird_snapshots.sql import query

_DIGEST = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"([0-9a-f]{64})(?:\.(\d+))?\.db")
_FILE_MODE = 0o644  # SQLite wants to open it for writing, though nothing is ever written


@dataclass(frozen=True, slots=True)
class Template:
    """A published database.

    Attributes:
        digest: sha256 of the file, 64 hexadecimal digits.
        path: The file. Read it as you like; never open it with SQLite for writing.
        size_bytes: Its size.
        page_size: Bytes of one of its pages.
    """

    digest: str
    path: Path
    size_bytes: int
    page_size: int


class TemplateStore:
    """The templates under one root.

    Args:
        root: Directory of the store; made where it is missing.
        files: The file operations.

    Raises:
        StoreError: The directories cannot be made.
    """

    def __init__(self, root: Path, *, files: FileOps = OS_FILES) -> None:
        self.root = Path(root).absolute()
        self._files = files
        self._templates = self.root / "templates"
        self._staging = self.root / "tmp"
        with translated("making the store's directories"):
            files.mkdir(self._templates)
            files.mkdir(self._staging)

    def publish(self, source: Path) -> Template:
        """Make a template of a SQLite file; of the same content always the same one.

        Raises:
            SourceError: The file cannot become a template; the class and the hint say why.
            StoreError: The store has no room, or refuses.
        """
        source = Path(source)
        already = self._same_file(source)
        if already is not None:
            return already
        with self._folder() as folder:
            staged = stage(source, folder, self._files)
            with translated("publishing a template"):
                digest = self._files.sha256(staged)
                target = self._path(digest)
                if target.exists() and self._files.sha256(target) == digest:  # a damaged one is replaced
                    return self.get(digest)
                staged.chmod(_FILE_MODE)
                self._files.rename(staged, target)
                self._files.sync(self._templates)
        return self.get(digest)

    def get(self, digest: str) -> Template:
        """A template by its digest.

        Raises:
            TemplateMissing: There is none.
            TemplateDamaged: Its file has no header.
        """
        path = self._path(digest)
        try:
            size = self._files.stat(path).st_size
            header = parse_database_header(self._files.read(path, 0, HEADER_BYTES))
        except FileNotFoundError as error:
            raise TemplateMissing(f"no template {digest}") from error
        except OSError as error:
            raise from_oserror(error, "reading a template") from error
        except FormatError as error:
            raise TemplateDamaged(f"template {digest}: {error}") from error
        return Template(digest, path, size, header.page_size)

    def list(self) -> builtins.list[Template]:
        """Every template, in the order of their digests."""
        with translated("listing templates"):
            names = self._files.names(self._templates)
        digests = sorted({match[1] for match in map(_NAME.fullmatch, names) if match})
        return [self.get(digest) for digest in digests if self._path(digest).exists()]

    def verify(self, digest: str) -> None:
        """Hash every copy of a template again, and let SQLite check its structure.

        Raises:
            TemplateMissing: There is none.
            TemplateDamaged: The bytes are not the ones that were published.
        """
        self.get(digest)
        for path in self._copies(digest):
            with translated("reading a template"):
                found = self._files.sha256(path)
            if found != digest:
                raise TemplateDamaged(f"template {digest} has the hash {found}")
            connection = open_source(path, immutable=True)
            try:
                query(connection, "PRAGMA quick_check")
            except apsw.Error as error:
                raise TemplateDamaged(f"template {digest}: {error}") from error
            finally:
                connection.close()

    def remove(self, digest: str) -> None:
        """Remove a template that no replica uses.

        Raises:
            TemplateMissing: There is none.
            TemplateInUse: Replicas of it exist.
        """
        if not self._path(digest).exists():  # a damaged one may well be removed
            raise TemplateMissing(f"no template {digest}")
        copies = self._copies(digest)
        with translated("removing a template"):
            links = sum(self._files.stat(path).st_nlink - 1 for path in copies)
            if links:
                raise TemplateInUse(f"template {digest} has {links} replicas")
            for path in reversed(copies):  # the first copy last: without it there is no template
                self._files.unlink(path)
            self._files.sync(self._templates)

    def schema(self, digest: str, *, count: bool = False) -> builtins.list[SchemaObject]:
        """Tables, views and virtual tables in the order of the file.

        Args:
            digest: The template.
            count: Count the rows of each table as well, which reads all of it.

        Raises:
            TemplateMissing, TemplateDamaged: As in `get`.
        """
        template = self.get(digest)
        connection = open_source(template.path, immutable=True)
        try:
            return read_schema(connection, count=count)
        except apsw.Error as error:
            raise TemplateDamaged(f"template {digest}: {error}") from error
        finally:
            connection.close()

    def link(self, digest: str, target: Path) -> None:
        """Give a template's inode another name, for a replica.

        Where one inode has all the links that the filesystem allows, another copy of the same bytes serves.

        Raises:
            TemplateMissing: There is none.
            TooManyLinks: Another copy could not be linked either.
            StoreFull, CrossDevice, LinkRefused: The filesystem refuses.
        """
        copies = self._copies(digest)
        for path in reversed(copies):  # the latest copy has room most likely
            try:
                self._files.link(path, target)
            except OSError as error:
                if error.errno == errno.ENOENT:
                    raise TemplateMissing(f"no template {digest}") from error
                if error.errno != errno.EMLINK:
                    raise from_oserror(error, "linking a template") from error
            else:
                return
        fresh = self._another_copy(digest, len(copies))
        try:
            self._files.link(fresh, target)
        except OSError as error:
            raise from_oserror(error, "linking another copy of a template") from error

    def _another_copy(self, digest: str, number: int) -> Path:
        path = self._templates / f"{digest}.{number}.db"
        with self._folder() as folder, translated("copying a template whose links are used up"):
            staged = folder / "template.db"
            self._files.copy(self._path(digest), staged)
            staged.chmod(_FILE_MODE)
            self._files.sync(staged)
            if self._files.sha256(staged) != digest:
                raise TemplateDamaged(f"template {digest} does not have its hash any more")
            self._files.rename(staged, path)
            self._files.sync(self._templates)
        return path

    def _path(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise TemplateMissing(f"{digest!r} is no digest")
        return self._templates / f"{digest}.db"

    def _copies(self, digest: str) -> tuple[Path, ...]:
        """Every file with the bytes of a template; the first is the one that names it."""
        first = self._path(digest)
        copies, number = [first], 1
        while (path := self._templates / f"{digest}.{number}.db").exists():
            copies.append(path)
            number += 1
        return tuple(copies)

    def _same_file(self, source: Path) -> Template | None:
        """The template that a path already is, by its inode."""
        try:
            given = source.stat()
        except OSError:
            return None
        match = _NAME.fullmatch(source.resolve().name)
        if match is None or not self._path(match[1]).exists():
            return None
        same = any(os.path.samestat(given, path.stat()) for path in self._copies(match[1]))
        return self.get(match[1]) if same else None

    @contextmanager
    def _folder(self) -> Generator[Path]:
        """A folder of one's own under tmp/, locked so that a store that opens meanwhile does not sweep it."""
        folder = self._staging / f"publish-{uuid.uuid4().hex}"
        lock: int | None = None
        try:
            with translated("making a temporary folder"):
                self._files.mkdir(folder)
                lock = self._files.lock(folder)
            yield folder
        finally:
            with translated("removing a temporary folder"):
                self._files.remove_tree(folder)
            if lock is not None:
                os.close(lock)
