"""The benchmark itself, in miniature: every figure is of something that happened."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import pytest

from bird_server.benches import replicas
from bird_server.benches.replicas import build_template, run


@pytest.mark.parametrize("megabytes", [0.1, 2.0])
def test_a_template_has_about_the_size_that_was_asked_for(tmp_path: Path, megabytes: float) -> None:
    path = tmp_path / "t.sqlite"
    rows = build_template(path, megabytes)
    assert path.stat().st_size == pytest.approx(megabytes * 1e6, rel=0.5)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*), min(id), max(id) FROM item").fetchone() == (rows, 1, rows)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([3.0], 50, 3.0), ([1.0, 2.0, 3.0], 50, 2.0), ([float(n) for n in range(101)], 99, 99.0), ([2.0, 1.0], 100, 2.0)],
)
def test_percentiles(values: list[float], percent: int, expected: float) -> None:
    assert replicas._percentile(values, percent) == expected  # pyright: ignore[reportPrivateUsage]


def test_in_miniature_all_figures_are_there_and_make_sense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "ENGINE_ROUNDS", 20)
    monkeypatch.setattr(replicas, "COPIES", 2)
    stages: list[str] = []
    report = run(tmp_path, template_mb=1.0, replicas=12, rows_changed=5, progress=stages.append)
    figures = asdict(report)
    assert report.template_unchanged is True
    assert report.replicas == 12
    assert report.template_mb == pytest.approx(1.0, rel=0.5)
    assert all(value > 0 for name, value in figures.items() if name.endswith(("_p50", "_p99", "_per_s")))
    assert report.acquire_us_p50 <= report.acquire_us_p99
    assert report.http_create_ms_p50 <= report.http_create_ms_p99
    # idle replicas are links; five rows of a thousand bytes in pages of their own are some tens of kilobytes
    assert report.disk_idle_bytes_per_replica < 20_000
    assert 10_000 < report.disk_written_bytes_per_replica < 200_000
    assert report.disk_written_bytes_per_replica > report.disk_idle_bytes_per_replica
    template = report.template_mb * 1e6
    written = 12 * report.disk_written_bytes_per_replica
    assert report.spatial_efficiency == pytest.approx(12 * template / (template + written), rel=0.1)
    assert 1 < report.spatial_efficiency <= 12
    assert len(stages) == 4
    assert not list(tmp_path.glob("copy-*"))


def test_a_template_that_something_wrote_to_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "ENGINE_ROUNDS", 2)
    monkeypatch.setattr(replicas, "COPIES", 1)
    served = replicas._serve  # pyright: ignore[reportPrivateUsage]

    async def spoiled(*arguments: object) -> object:
        found = await served(*arguments)  # type: ignore[arg-type]
        (path,) = (tmp_path / "store" / "templates").glob("*")
        path.chmod(0o600)
        with path.open("r+b") as file:
            file.seek(200_000)
            file.write(b"!")
        return found

    monkeypatch.setattr(replicas, "_serve", spoiled)
    report = run(tmp_path, template_mb=0.5, replicas=1, rows_changed=1, progress=lambda _: None)
    assert report.template_unchanged is False
