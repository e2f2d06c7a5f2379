"""`bird-env bench`: what it prints, to people and to programs, and that a changed template is no success."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

import command_line
from bird_server.benches import replicas
from bird_server.benches.replicas import ReplicasReport


def report(**changes: Any) -> ReplicasReport:
    values: dict[str, Any] = {field.name: 1.5 for field in fields(ReplicasReport)}
    return ReplicasReport(**{**values, "replicas": 1_024, "template_unchanged": True, **changes})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the benchmark was called with; it is not run."""
    found: dict[str, Any] = {"report": report()}

    def run(folder: Path, **arguments: Any) -> ReplicasReport:
        found.update(arguments, folder=folder)
        arguments["progress"]("working")
        result: ReplicasReport = found["report"]
        return result

    monkeypatch.setattr(replicas, "run", run)
    return found


def bench(*arguments: str) -> Result:
    return command_line.run("bench", "replicas", *arguments)


def test_by_default_it_is_the_size_that_the_product_promises(
    asked: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert bench().exit_code == 0
    assert (asked["replicas"], asked["template_mb"], asked["rows_changed"]) == (1_024, 500.0, 10)
    assert asked["folder"].parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_json_is_the_report_and_nothing_else(asked: dict[str, Any], tmp_path: Path) -> None:
    result = bench("--json", "--folder", str(tmp_path), "--replicas", "3", "--template-mb", "2", "--rows-changed", "4")
    assert (asked["replicas"], asked["template_mb"], asked["rows_changed"]) == (3, 2.0, 4)
    assert json.loads(result.stdout) == asdict(report())
    assert list(tmp_path.iterdir()) == []


def test_people_get_every_figure_by_name(
    asked: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    printed = bench("--folder", str(tmp_path)).stdout
    for field in fields(ReplicasReport):
        assert field.name in printed
    assert "1,024" in printed


def test_a_template_that_changed_ends_with_1(asked: dict[str, Any], tmp_path: Path) -> None:
    asked["report"] = report(template_unchanged=False)
    result = bench("--folder", str(tmp_path), "--json")
    assert result.exit_code == 1
    assert "must never happen" in result.stderr


@pytest.mark.parametrize("arguments", [["--replicas", "0"], ["--template-mb", "0"], ["--rows-changed", "0"]])
def test_sizes_that_make_no_sense_are_refused(asked: dict[str, Any], arguments: list[str]) -> None:
    assert bench(*arguments).exit_code == 2
    assert "folder" not in asked


def test_the_group_lists_its_benchmarks() -> None:
    result = command_line.run("bench", "--help")
    assert "replicas" in result.stdout
