"""`bird-env bench replicas`: what many live replicas of one large template cost, against copies of its file.

In one run on one filesystem: engine latencies of acquire and reset (with the first SELECT) beside copying and opening
the template's file; then a real server with all replicas live at once: creates and steps over HTTP, disk beyond the
template, memory of the server process. Ratios hold on a busy machine where milliseconds do not.

Spatial efficiency is replicas * template bytes / (template bytes + bytes on disk beyond it): how many times more
database is offered than is stored.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import sqlite3
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from bird_env import AsyncClient
from bird_server.catalogue import Catalogue
from bird_server.database_files import DatabaseFile
from bird_server.datadir import DataDirectory
from bird_server.importing import import_database
from bird_server.server_process import ServerProcess
from bird_snapshots.limits import Limits
from bird_snapshots.store import Store
from bird_snapshots.template import Template, TemplateStore

DATABASE = "bench"
ROW_BYTES = 1_000
ENGINE_ROUNDS = 300
COPIES = 5
CONCURRENCY = 32
READ = "SELECT value FROM item WHERE id = 1"

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ReplicasReport:
    """The contract of `--json`: microseconds and milliseconds are of this machine, ratios are what to compare."""

    template_mb: float
    replicas: int
    acquire_us_p50: float
    acquire_us_p99: float
    reset_us_p50: float
    reset_us_p99: float
    copy_ms_p50: float
    copy_over_acquire: float
    http_create_ms_p50: float
    http_create_ms_p99: float
    http_creates_per_s: float
    http_reset_ms_p50: float
    disk_idle_bytes_per_replica: float
    disk_written_bytes_per_replica: float
    memory_kib_per_replica: float
    spatial_efficiency: float
    template_unchanged: bool


def run(folder: Path, *, template_mb: float, replicas: int, rows_changed: int, progress: Progress) -> ReplicasReport:
    """Measure, in a data directory made below `folder` (its filesystem is what is measured)."""
    directory = DataDirectory(folder)
    directory.root.mkdir(parents=True, exist_ok=True)
    progress(f"building a template of {template_mb:g} MB")
    source = folder / "source.sqlite"
    rows = build_template(source, template_mb)
    templates = TemplateStore(directory.store)
    with Catalogue(directory.root) as catalogue:
        template = templates.get(import_database(DatabaseFile(DATABASE, source), catalogue, templates).digest)
    source.unlink()
    progress(f"engine: {ENGINE_ROUNDS} acquires and resets, {COPIES} file copies")
    acquire, reset = _engine_latencies(directory.store, template)
    copies = _copy_latencies(template, folder)
    progress(f"server: {replicas} trajectories live at once")
    environment = {"BIRD_ENV_CAPACITY": str(replicas + 1)}
    with ServerProcess(directory.root, environment=environment) as server:
        served = asyncio.run(_serve(server, directory, template, replicas, _write(rows, rows_changed)))
    progress("hashing the template again")
    with template.path.open("rb") as file:
        unchanged = hashlib.file_digest(file, "sha256").hexdigest() == template.digest
    size = template.size_bytes
    return ReplicasReport(
        template_mb=round(size / 1e6, 1),
        replicas=replicas,
        acquire_us_p50=_us(acquire, 50),
        acquire_us_p99=_us(acquire, 99),
        reset_us_p50=_us(reset, 50),
        reset_us_p99=_us(reset, 99),
        copy_ms_p50=round(statistics.median(copies) * 1e3, 1),
        copy_over_acquire=round(statistics.median(copies) / statistics.median(acquire)),
        http_create_ms_p50=round(_percentile(served.creates, 50) * 1e3, 2),
        http_create_ms_p99=round(_percentile(served.creates, 99) * 1e3, 2),
        http_creates_per_s=round(replicas / served.create_wall_s),
        http_reset_ms_p50=round(_percentile(served.resets, 50) * 1e3, 2),
        disk_idle_bytes_per_replica=round(served.disk_idle / replicas),
        disk_written_bytes_per_replica=round(served.disk_written / replicas),
        memory_kib_per_replica=round(served.memory_kib / replicas, 1),
        spatial_efficiency=round(replicas * size / (size + served.disk_written), 1),
        template_unchanged=unchanged,
    )


def build_template(path: Path, megabytes: float) -> int:
    """A table `item(id, value, note)` of about the size asked for; returns its number of rows."""
    rows = max(1, int(megabytes * 1e6 / (ROW_BYTES + 40)))
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA page_size=4096;")
        connection.execute("CREATE TABLE item(id INTEGER PRIMARY KEY, value INTEGER, note TEXT)")
        connection.executemany(
            "INSERT INTO item VALUES (?, ?, ?)",
            ((number, number % 97, "x" * ROW_BYTES) for number in range(1, rows + 1)),
        )
        connection.commit()
    return rows


def _write(rows: int, rows_changed: int) -> str:
    """An update of rows spread over the whole table, each on a page of its own."""
    every = max(1, rows // max(1, rows_changed))
    ids = range(1, rows + 1, every)[:rows_changed]
    return f"UPDATE item SET value = value + 1 WHERE id IN ({', '.join(map(str, ids))})"


def _engine_latencies(root: Path, template: Template) -> tuple[list[float], list[float]]:
    """Seconds of acquire + first SELECT, and of reset after a small write + first SELECT."""
    limits = Limits()
    acquire: list[float] = []
    reset: list[float] = []
    with Store(root) as store:
        for _ in range(ENGINE_ROUNDS):
            started = time.perf_counter()
            replica = store.acquire(template.digest)
            replica.execute(READ, limits)
            acquire.append(time.perf_counter() - started)
            replica.execute("UPDATE item SET value = 0 WHERE id <= 10", limits)
            started = time.perf_counter()
            fresh = replica.reset()
            fresh.execute(READ, limits)
            reset.append(time.perf_counter() - started)
            replica.release()
            fresh.release()
    return acquire, reset


def _copy_latencies(template: Template, folder: Path) -> list[float]:
    """Seconds of copying the file, opening the copy and the first SELECT."""
    found: list[float] = []
    for number in range(COPIES):
        target = folder / f"copy-{number}.sqlite"
        started = time.perf_counter()
        shutil.copyfile(template.path, target)
        with closing(sqlite3.connect(target)) as connection:
            connection.execute(READ).fetchall()
        found.append(time.perf_counter() - started)
        for path in folder.glob(f"{target.name}*"):
            path.unlink()
    return found


@dataclass(slots=True)
class _Served:
    creates: list[float]
    create_wall_s: float
    resets: list[float]
    disk_idle: int
    disk_written: int
    memory_kib: float


async def _serve(
    server: ServerProcess, directory: DataDirectory, template: Template, replicas: int, write_sql: str
) -> _Served:
    gate = asyncio.Semaphore(CONCURRENCY)
    creates: list[float] = []
    resets: list[float] = []
    async with AsyncClient(server.url) as client:
        warm = await client.create_trajectory(database=DATABASE)
        await client.delete_trajectory(warm.trajectory_id)
        memory_before = _memory_kib(server.pid)

        async def create(number: int) -> None:
            async with gate:
                started = time.perf_counter()
                await client.create_trajectory(trajectory_id=f"r{number}", database=DATABASE)
                creates.append(time.perf_counter() - started)

        async def write(number: int) -> None:
            async with gate:
                handle = client.attach(f"r{number}")
                result = await handle.execute(write_sql)
                if result.outcome != "ok":
                    raise RuntimeError(result.observation.text)

        async def reset(number: int) -> None:
            async with gate:
                started = time.perf_counter()
                await client.reset_trajectory(f"r{number}", epoch=0)
                resets.append(time.perf_counter() - started)

        started = time.perf_counter()
        await asyncio.gather(*(create(number) for number in range(replicas)))
        wall_s = time.perf_counter() - started
        disk_idle = _disk_bytes(directory, template)
        await asyncio.gather(*(write(number) for number in range(replicas)))
        disk_written = _disk_bytes(directory, template)
        memory = _memory_kib(server.pid) - memory_before
        await asyncio.gather(*(reset(number) for number in range(min(replicas, 200))))
    return _Served(creates, wall_s, resets, disk_idle, disk_written, memory)


def _disk_bytes(directory: DataDirectory, template: Template) -> int:
    """Bytes on disk of the store beyond the template, each inode once: links cost none."""
    own = template.path.stat().st_ino
    inodes: dict[int, int] = {}
    for folder, _, names in os.walk(directory.store):
        for name in names:
            found = (Path(folder) / name).lstat()
            inodes[found.st_ino] = found.st_blocks * 512
    return sum(size for inode, size in inodes.items() if inode != own)


def _memory_kib(pid: int) -> float:
    """Memory of the process that no file backs: the template's own pages are the page cache's, shared by all."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines():
        if line.startswith("Pss_Anon:"):
            return float(line.split()[1])
    raise RuntimeError("this kernel does not tell anonymous memory in smaps_rollup")


def _percentile(values: list[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(percent / 100 * (len(ordered) - 1)))]


def _us(values: list[float], percent: int) -> float:
    return round(_percentile(values, percent) * 1e6, 1)
