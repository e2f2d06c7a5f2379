"""Cores and memory as cgroups of both versions tell them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bird_snapshots.machine import memory_bytes, usable_cores


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))


def write(root: Path, files: dict[str, str]) -> tuple[Path, Path]:
    for name, text in {"own": "", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root / "cgroups", root / "own"


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 8),
        ({"cgroups/cpu.max": "max 100000\n"}, 8),
        ({"cgroups/cpu.max": "250000 100000\n"}, 2),
        ({"cgroups/cpu.max": "50000 100000\n"}, 1),
        ({"cgroups/cpu.max": "9900000 100000\n"}, 8),
        ({"cgroups/cpu.max": "nonsense\n"}, 8),
        ({"own": "0::/a/b\n", "cgroups/a/cpu.max": "300000 100000", "cgroups/a/b/cpu.max": "max 100000"}, 3),
        ({"cgroups/cpu/cpu.cfs_quota_us": "-1\n", "cgroups/cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ({"cgroups/cpu/cpu.cfs_quota_us": "400000\n", "cgroups/cpu/cpu.cfs_period_us": "100000\n"}, 4),
        (
            {
                "own": "5:memory:/m\n4:cpu,cpuacct:/docker/x\n",
                "cgroups/cpu/docker/x/cpu.cfs_quota_us": "200000\n",
                "cgroups/cpu/docker/x/cpu.cfs_period_us": "100000\n",
            },
            2,
        ),
    ],
)
def test_cores(tmp_path: Path, files: dict[str, str], cores: int) -> None:
    assert usable_cores(*write(tmp_path, files)) == cores


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"cgroups/memory.max": "max\n"}, None),
        ({"cgroups/memory.max": "1000000\n"}, 1_000_000),
        ({"own": "0::/a\n", "cgroups/memory.max": "5000000\n", "cgroups/a/memory.max": "2000000\n"}, 2_000_000),
        ({"cgroups/memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        ({"own": "3:memory:/x\n", "cgroups/memory/x/memory.limit_in_bytes": "3000000\n"}, 3_000_000),
    ],
)
def test_memory(tmp_path: Path, files: dict[str, str], limit: int | None) -> None:
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert memory_bytes(*write(tmp_path, files)) == (limit or physical)


def test_this_machine_has_some_of_both() -> None:
    assert usable_cores() >= 1
    assert memory_bytes() > 10_000_000
