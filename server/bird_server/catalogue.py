"""The catalogue: which databases and tasks there are. In SQLite (`catalogue.db`), read by a server, fed by imports.

A database is a name for a template of the store, which is known by the sha256 of its content; a task is a record in the
official evaluator's form. Every change is one transaction that also counts `revision` up, so that a server that keeps
the catalogue in memory asks one number to learn of an import made beside it.

Reading never waits for writing (write-ahead log). Writers take the write lock when they begin, and wait for each other.
The file appears whole, tables and all, by a link: two processes that open a new directory at once agree on one.

Leaves out: the templates themselves (`bird_snapshots`), and finding and reading files (`importing`, `bird_env.tasks`).
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, ForeignKey, Index, create_engine, delete, event, func, insert, select, text, update
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from bird_env.errors import DataError, UnknownDatabase
from bird_env.models import DatabaseInfo
from bird_env.tasks import Task

FILE_NAME = "catalogue.db"
SCHEMA_VERSION = 1

#: How long a writer waits for another: an import of ten thousand tasks commits within a second.
BUSY_TIMEOUT_MS = 30_000

#: What may stand in an address without escaping, beginning so that no name looks like an option or a hidden file.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.~-]{0,199}")

#: SQLite takes 32,766 values in one statement; this is far from it.
_IDS_A_QUERY = 500


@dataclass(frozen=True, slots=True)
class Database:
    """A database that trajectories can start from: a name for a template.

    Args:
        name: As the file was called, its case kept.
        digest: The template's sha256, its name in the store.
        page_size: In bytes.
        tables: Tables and views it has, SQLite's own left out.
        source: The path it was imported from.
    """

    name: str
    digest: str
    size_bytes: int
    page_size: int
    tables: int
    source: str
    imported_at: datetime

    def info(self) -> DatabaseInfo:
        """As it is told over the wire: without the path it came from."""
        return DatabaseInfo(
            database=self.name,
            sha256=self.digest,
            size_bytes=self.size_bytes,
            page_size_bytes=self.page_size,
            tables=self.tables,
            imported_at=self.imported_at,
        )


@dataclass(frozen=True, slots=True)
class AddedTasks:
    """What an import of tasks changed, by instance_id."""

    added: tuple[str, ...]
    replaced: tuple[str, ...]
    unchanged: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Counts:
    """How much there is."""

    databases: int
    tasks: int
    scorable: int


class _Base(DeclarativeBase):
    pass


class _About(_Base):
    __tablename__ = "about"

    id: Mapped[int] = mapped_column(primary_key=True)
    schema_version: Mapped[int]
    revision: Mapped[int]


class _DatabaseRow(_Base):
    __tablename__ = "databases"

    name: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str]
    size_bytes: Mapped[int]
    page_size: Mapped[int]
    tables: Mapped[int]
    source: Mapped[str]
    imported_at: Mapped[str]


class _TaskRow(_Base):
    __tablename__ = "tasks"

    instance_id: Mapped[str] = mapped_column(primary_key=True)
    database: Mapped[str]
    category: Mapped[str | None]
    scorable: Mapped[bool]
    digest: Mapped[str]
    source: Mapped[str]
    imported_at: Mapped[str]

    __table_args__ = (Index("tasks_by_database", "database"),)


class _RecordRow(_Base):
    """Records apart from what is searched: a list of ten thousand tasks need not read their tests."""

    __tablename__ = "records"

    instance_id: Mapped[str] = mapped_column(ForeignKey("tasks.instance_id", ondelete="CASCADE"), primary_key=True)
    record_json: Mapped[str]


def check_database_name(name: str) -> str:
    """The name itself, where it can stand in an address.

    Raises:
        DataError: It cannot.
    """
    if _NAME.fullmatch(name) is None:
        raise DataError(
            f"{name!r} cannot be the name of a database",
            hint="Use --name: at most 200 of A-Z a-z 0-9 _ . ~ -, the first a letter, a digit or _.",
        )
    return name


class Catalogue:
    """Databases and tasks of one data directory. Safe to share between threads and processes.

    Args:
        root: The data directory.
        make: Make the directory and the file in it where they do not exist; else that is an error.
        now: The clock behind `imported_at`.

    Raises:
        DataError: The directory or the file in it cannot be used.
    """

    def __init__(
        self, root: Path, *, make: bool = True, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._now = now
        self.path = root / FILE_NAME
        try:
            if make:
                root.mkdir(parents=True, exist_ok=True)
                if not self.path.exists():
                    _make(self.path)
            elif not self.path.exists():
                raise _absent(root)
            self._engine = _opened(self.path)
        except OSError as error:
            raise DataError(
                f"the data directory {root} cannot be used: {error.strerror}",
                hint="Name a folder that this user may write to with --data, or with BIRD_ENV_DATA.",
            ) from error
        except DatabaseError as error:
            raise DataError(
                f"the catalogue {self.path} cannot be opened: {error.orig}",
                hint="Move the file aside and import again, or name another directory with --data.",
            ) from error
        self._writing = self._engine.execution_options(bird_begin="BEGIN IMMEDIATE")

    def close(self) -> None:
        """Close every connection; idempotent."""
        self._engine.dispose()

    def __enter__(self) -> Catalogue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def revision(self) -> int:
        """A number that grows with every change, whichever process made it. Cheap: one row is read, without an ORM."""
        with self._engine.connect() as connection:
            return int(connection.exec_driver_sql("SELECT revision FROM about").scalar_one())

    def counts(self) -> Counts:
        with Session(self._engine) as session:
            return Counts(
                databases=session.scalars(select(func.count()).select_from(_DatabaseRow)).one(),
                tasks=session.scalars(select(func.count()).select_from(_TaskRow)).one(),
                scorable=session.scalars(select(func.count()).where(_TaskRow.scorable)).one(),
            )

    # ---- databases ----

    def add_database(
        self, name: str, *, digest: str, size_bytes: int, page_size: int, tables: int, source: str
    ) -> Database | None:
        """Let the name stand for a template.

        Returns:
            What the name stood for before, where that was another template; else None.

        Raises:
            DataError: The name cannot stand in an address.
        """
        check_database_name(name)
        with self._write() as session:
            row = session.get(_DatabaseRow, name)
            before = _database(row) if row is not None and row.digest != digest else None
            session.merge(
                _DatabaseRow(
                    name=name,
                    digest=digest,
                    size_bytes=size_bytes,
                    page_size=page_size,
                    tables=tables,
                    source=source,
                    imported_at=self._now().isoformat(),
                )
            )
        return before

    def databases(self) -> list[Database]:
        """All of them, by name."""
        with Session(self._engine) as session:
            return [_database(row) for row in session.scalars(select(_DatabaseRow).order_by(_DatabaseRow.name))]

    def database(self, name: str) -> Database | None:
        """What the name stands for; None where it stands for nothing."""
        with Session(self._engine) as session:
            row = session.get(_DatabaseRow, _storable(name))
            return None if row is None else _database(row)

    def remove_database(self, name: str, *, with_tasks: bool = False) -> Database:
        """Forget a name, and with `with_tasks` the tasks on it. The template stays in the store.

        Raises:
            UnknownDatabase: Nothing has this name.
            DataError: Tasks are on it, and `with_tasks` was not said.
        """
        with self._write() as session:
            row = session.get(_DatabaseRow, _storable(name))
            if row is None:
                raise UnknownDatabase(f"There is no database {name!r}.")
            removed = _database(row)
            on_it = select(_TaskRow.instance_id).where(_TaskRow.database == row.name)
            if session.scalars(on_it.limit(1)).first() is not None:
                if not with_tasks:
                    raise DataError(f"there are tasks on {name!r}", hint="Remove them with it: --with-tasks.")
                session.execute(delete(_TaskRow).where(_TaskRow.database == row.name))
            session.delete(row)
        return removed

    # ---- tasks ----

    def add_tasks(self, tasks: Iterable[Task], *, source: str) -> AddedTasks:
        """Keep tasks, all or none. One whose instance_id is taken replaces the other where their digests differ."""
        given = {task.instance_id: task for task in tasks}
        changed: dict[str, Task] = {}
        replaced: list[str] = []
        unchanged: list[str] = []
        with self._write() as session:
            known = _digests(session, list(given))
            for instance_id, task in given.items():
                if known.get(instance_id) == task.digest:
                    unchanged.append(instance_id)
                    continue
                changed[instance_id] = task
                if instance_id in known:
                    replaced.append(instance_id)
            for some in _batches(replaced):
                session.execute(delete(_TaskRow).where(_TaskRow.instance_id.in_(some)))
            if changed:
                about = {"source": source, "imported_at": self._now().isoformat()}
                session.execute(insert(_TaskRow), [{**_task_values(task), **about} for task in changed.values()])
                session.execute(insert(_RecordRow), [_record_values(task) for task in changed.values()])
        added = tuple(instance_id for instance_id in changed if instance_id not in known)
        return AddedTasks(added=added, replaced=tuple(replaced), unchanged=tuple(unchanged))

    def tasks(
        self,
        *,
        database: str | None = None,
        category: str | None = None,
        scorable: bool | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[Task]:
        """Tasks by instance_id, those that fit every filter given.

        Args:
            after: Only those behind this instance_id: how the next page is asked for, whatever was added meanwhile.
            limit: At most so many.
        """
        query = select(_RecordRow.record_json).join(_TaskRow, _TaskRow.instance_id == _RecordRow.instance_id)
        if database is not None:
            query = query.where(_TaskRow.database == _storable(database))
        if category is not None:
            query = query.where(_TaskRow.category == _storable(category))
        if scorable is not None:
            query = query.where(_TaskRow.scorable == scorable)
        if after is not None:
            query = query.where(_TaskRow.instance_id > _storable(after))
        query = query.order_by(_TaskRow.instance_id)
        if limit is not None:
            query = query.limit(limit)
        with Session(self._engine) as session:
            return [Task.from_json(record) for record in session.scalars(query)]

    def task(self, instance_id: str) -> Task | None:
        """The task of this id; None where there is none."""
        if _storable(instance_id) != instance_id:
            return None
        query = select(_RecordRow.record_json).where(_RecordRow.instance_id == instance_id)
        with self._engine.connect() as connection:
            record = connection.scalar(query)
        return None if record is None else Task.from_json(record)

    def databases_of_tasks(self) -> dict[str, int]:
        """How many tasks are on each database, those included that the catalogue does not have."""
        query = select(_TaskRow.database, func.count()).group_by(_TaskRow.database).order_by(_TaskRow.database)
        with Session(self._engine) as session:
            return {row[0]: row[1] for row in session.execute(query)}

    @contextlib.contextmanager
    def _write(self) -> Generator[Session]:
        with Session(self._writing) as session, session.begin():
            yield session
            session.execute(update(_About).values(revision=_About.revision + 1))


def _absent(root: Path) -> DataError:
    hint = "Name it with --data, or with BIRD_ENV_DATA; `bird-env databases import` makes one."
    if root.is_dir():
        return DataError(f"{root} is no data directory: it holds no {FILE_NAME}", hint=hint)
    if root.exists():
        return DataError(f"{root} is a file, not a data directory", hint=hint)
    return DataError(f"the data directory {root} does not exist", hint=hint)


def _opened(path: Path) -> Engine:
    engine = _engine_for(path)
    try:
        with Session(engine) as session:
            version = session.scalars(select(_About.schema_version)).one_or_none()
        if version != SCHEMA_VERSION:
            raise DataError(
                f"the catalogue {path} has version {version}; this bird-env reads version {SCHEMA_VERSION}",
                hint="Use the bird-env that made it, or import into another directory with --data.",
            )
    except BaseException:
        engine.dispose()
        raise
    return engine


def _engine_for(path: Path) -> Engine:
    engine = create_engine(f"sqlite:///{path}")
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    return engine


def _configure(connection: sqlite3.Connection, _: Any) -> None:
    connection.isolation_level = None  # the module would begin transactions by itself, and late
    for pragma in (f"busy_timeout = {BUSY_TIMEOUT_MS}", "foreign_keys = ON", "synchronous = NORMAL"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin(connection: Any) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("bird_begin", "BEGIN"))


def _make(path: Path) -> None:
    """A new catalogue at this path, or the one that another process put there meanwhile."""
    draft = path.with_name(f".{FILE_NAME}.{uuid.uuid4().hex}")
    engine = _engine_for(draft)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("ROLLBACK")  # the journal mode does not change inside a transaction
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            _Base.metadata.create_all(connection)
            connection.execute(text("INSERT INTO about VALUES (1, :version, 0)"), {"version": SCHEMA_VERSION})
            connection.commit()
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(draft)
    finally:
        engine.dispose()
        for leftover in (draft, Path(f"{draft}-wal"), Path(f"{draft}-shm")):
            leftover.unlink(missing_ok=True)


def _digests(session: Session, instance_ids: Sequence[str]) -> dict[str, str]:
    known: dict[str, str] = {}
    for some in _batches(instance_ids):
        query = select(_TaskRow.instance_id, _TaskRow.digest).where(_TaskRow.instance_id.in_(some))
        known.update({row[0]: row[1] for row in session.execute(query)})
    return known


def _batches(instance_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(instance_ids), _IDS_A_QUERY):
        yield instance_ids[start : start + _IDS_A_QUERY]


def _task_values(task: Task) -> dict[str, Any]:
    return {
        "instance_id": task.instance_id,
        "database": task.database,
        "category": None if task.category is None else _storable(task.category),
        "scorable": task.scorable,
        "digest": task.digest,
    }


def _record_values(task: Task) -> dict[str, Any]:
    return {"instance_id": task.instance_id, "record_json": task.to_json()}


def _storable(value: str) -> str:
    """The text with lone surrogates, which UTF-8 cannot hold, spelt out: texts to search by may come from anywhere."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def _database(row: _DatabaseRow) -> Database:
    return Database(
        name=row.name,
        digest=row.digest,
        size_bytes=row.size_bytes,
        page_size=row.page_size,
        tables=row.tables,
        source=row.source,
        imported_at=datetime.fromisoformat(row.imported_at),
    )
