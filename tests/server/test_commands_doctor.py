"""`bird-env doctor`: its table, its JSON, its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from bird_server import checkup
from bird_server.commands import doctor


@pytest.fixture
def cli() -> typer.Typer:
    app = typer.Typer()

    @app.callback()
    def root() -> None:
        """Makes `doctor` a subcommand, as in the whole command line."""

    doctor.add(app)
    return app


def run(cli: typer.Typer, *arguments: object) -> Result:
    result = CliRunner().invoke(cli, ["doctor", *(str(argument) for argument in arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_for_people(cli: typer.Typer, tmp_path: Path) -> None:
    result = run(cli, "--data", tmp_path / "data")
    assert result.exit_code == 0
    for word in ("engine SQLite", "replica", "open files", "This machine will do."):
        assert word in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_for_programs(cli: typer.Typer, tmp_path: Path) -> None:
    result = run(cli, "--data", tmp_path, "--size", 100, "--template-mb", 5, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert set(found) == {"ok", "versions", "checks", "needs"}
    assert found["ok"] is True
    assert {"name", "status", "value", "hint"} == set(found["checks"][0])
    assert {check["status"] for check in found["checks"]} <= {"ok", "remark", "error"}
    assert found["needs"]["descriptors"] == 400
    assert found["needs"]["template_bytes"] == 5_000_000


def test_what_would_not_work_is_exit_code_1(cli: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "sqlite_version", lambda: "3.40.1")
    result = run(cli, "--data", tmp_path, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["ok"] is False
    assert "Something here would not work" in run(cli, "--data", tmp_path).stdout


def test_too_many_replicas_for_this_machine(cli: typer.Typer, tmp_path: Path) -> None:
    result = run(cli, "--data", tmp_path, "--size", 10**9)
    assert result.exit_code == 1
    assert "1,000,000,000 live replicas" in result.stdout
