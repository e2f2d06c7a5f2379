"""Replicas against file copies, in one run on one machine: only the ratios mean anything elsewhere.

    python -m bird_snapshots.measure [--template-mb 500] [--rounds 50] [--live 200] [--folder DIR]

The two ways take turns, so that a busy machine is equally unkind to both. A copy is made as a server without snapshots
makes it: the file is copied by the kernel, opened by stock SQLite, and asked for one row.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import apsw

from bird_snapshots.connect import open_private, open_source
from bird_snapshots.files import OS_FILES
from bird_snapshots.limits import Limits
from bird_snapshots.replica import Replica
from bird_snapshots.sql import pragma, query
from bird_snapshots.store import Store

_ROW_BYTES = 110  # of the generated table, roughly
_ASK = "SELECT v FROM item WHERE id = 7"
_CHANGE = "UPDATE item SET v = v + 1 WHERE id BETWEEN 1000 AND 1009"
_SCAN = "SELECT count(*), sum(v), max(length(text)) FROM item"


def generate(path: Path, megabytes: float) -> None:
    """Write a database of about this size: one table with an integer key, a number and a text."""
    connection = open_private(path)
    try:
        pragma(connection, "journal_mode", "OFF")
        query(connection, "CREATE TABLE item(id INTEGER PRIMARY KEY, v INTEGER, text TEXT)")
        count = int(megabytes * 1_000_000 / _ROW_BYTES)
        numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
        query(connection, f"INSERT INTO item {numbers} SELECT i, i % 97, hex(randomblob(48)) FROM n")
    finally:
        connection.close()


def measure(folder: Path, megabytes: float, rounds: int, live: int) -> dict[str, float]:
    """Medians in microseconds, sizes in bytes, memory in KiB; `times_faster` are ratios of medians.

    Args:
        folder: An empty folder, on the filesystem that is to be measured.
        megabytes: Size of the template.
        rounds: How often each thing is timed.
        live: How many replicas are held at once for memory and disk.
    """
    source = folder / "source.db"
    generate(source, megabytes)
    with Store(folder / "store") as store:
        template = store.templates.publish(source)
        source.unlink()
        unlimited = Limits(cpu_s=1e6, wall_s=1e6)
        times: dict[str, list[float]] = {}

        def timed(name: str, action: Callable[..., object], *arguments: object) -> None:
            start = time.perf_counter()
            action(*arguments)
            times.setdefault(name, []).append((time.perf_counter() - start) * 1e6)

        copy = folder / "copy.db"
        for _ in range(rounds):
            timed("copy_open_select", _copied, template.path, copy)
            timed("copy_scan", _on_copy, copy, _SCAN)
            copy.unlink()
            replica = store.acquire(template.digest)
            timed("release", replica.release)
            timed("acquire_select", _acquire_and_ask, store, template.digest)
            replica = store.acquire(template.digest)
            timed("select", replica.execute, _ASK)
            timed("change_ten_rows", replica.execute, _CHANGE)
            timed("branch", replica.branch)
            timed("reset_select", _reset_and_ask, replica)
            replica = store.acquire(template.digest)
            timed("scan", replica.execute, _SCAN, unlimited)
            timed("release_after_scan", replica.release)  # the kernel takes back the mapping of every page read
        store.close()
    found = {name: statistics.median(values) for name, values in times.items()}
    result = {f"{name}_us": value for name, value in found.items()}
    result["acquire_times_faster"] = found["copy_open_select"] / found["acquire_select"]
    result["scan_time_ratio"] = found["scan"] / found["copy_scan"]
    with Store(folder / "store") as store:
        digest = store.templates.list()[0].digest
        store.acquire(digest).execute(_CHANGE)
        before = _memory_kib()
        replicas = [store.acquire(digest) for _ in range(live)]
        for each in replicas:
            each.execute(_CHANGE)
        result["template_bytes"] = store.templates.get(digest).size_bytes
        result["memory_kib_each"] = (_memory_kib() - before) / live
        result["disk_bytes_each"] = store.statistics().bytes / (live + 1)
        logical = result["template_bytes"] * (live + 1)
        result["disk_times_smaller"] = logical / (result["template_bytes"] + store.statistics().bytes)
    return result


def _acquire_and_ask(store: Store, digest: str) -> None:
    store.acquire(digest).execute(_ASK)


def _reset_and_ask(replica: Replica) -> None:
    replica.reset(release=True).execute(_ASK)


def _copied(template: Path, copy: Path) -> None:
    OS_FILES.copy(template, copy)
    _on_copy(copy, _ASK)


def _on_copy(copy: Path, sql: str) -> None:
    connection = open_source(copy, immutable=True)
    try:
        query(connection, sql)
    finally:
        connection.close()


def _memory_kib() -> int:
    """This process's share of memory, what it shares with others divided among them (PSS)."""
    for line in Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    raise OSError("the kernel tells no PSS")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bird_snapshots.measure", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--template-mb", type=float, default=50.0, help="size of the template")
    parser.add_argument("--rounds", type=int, default=30, help="how often each thing is timed")
    parser.add_argument("--live", type=int, default=200, help="replicas held at once")
    parser.add_argument("--folder", type=Path, default=None, help="where to measure; a temporary folder if left out")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        found = measure(Path(folder), given.template_mb, given.rounds, given.live)
    print(json.dumps({"sqlite": apsw.sqlite_lib_version(), **{key: round(value, 1) for key, value in found.items()}}))


if __name__ == "__main__":
    main()
