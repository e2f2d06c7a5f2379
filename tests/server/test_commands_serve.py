"""`bird-env serve`: its flags, and what it refuses before anything is started. As a process: test_server_process."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import Result

from bird_server.settings import Settings
from command_line import run


@pytest.fixture(autouse=True)
def untouched_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """`serve` makes the process's time UTC, logs to its standard error and raises its descriptors: not here."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setattr("bird_server.commands.serve._raise_descriptor_limit", lambda: None)
    monkeypatch.setattr("logging.basicConfig", lambda **_: None)


def serve(*arguments: str) -> Result:
    return run("serve", *arguments)


def test_help_says_each_flag_and_where_the_settings_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    printed = serve("--help").stdout
    for flag in ("--data", "--host", "--port", "--ready-file", "--capacity", "--scorers", "--prompts", "--insecure"):
        assert flag in printed
    assert "docs/settings.md" in printed


def test_flags_are_settings_by_name() -> None:
    assert {"data", "capacity", "scorers", "prompts"} <= set(Settings.model_fields)


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        (["--capacity", "0"], {}, "BIRD_ENV_CAPACITY"),
        (["--capacity", "many"], {}, "--capacity"),
        ([], {"BIRD_ENV_LEASE_S": "-1"}, "BIRD_ENV_LEASE_S"),
        ([], {"BIRD_ENV_FORMAT": "xml"}, "BIRD_ENV_FORMAT"),
        (["--host", "0.0.0.0"], {}, "--insecure"),
        (["--host", "::"], {}, "--insecure"),
        (["--prompts", "no/such/folder"], {}, "no folder"),
        (["--host", "192.0.2.1", "--insecure"], {}, "Cannot listen"),
        (["--host", "192.0.2.1", "--insecure"], {}, "--host takes an address of this machine"),
        (["--host", "ä..b", "--insecure"], {}, "no name of a host"),
        (["--port", "65536"], {}, "--port"),
        (["--port", "-1"], {}, "--port"),
        (["--log-level", "loud"], {}, "--log-level"),
    ],
)
def test_what_it_cannot_do_is_refused_in_a_line_with_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], environment: dict[str, str], words: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    result = serve("--data", str(tmp_path / "data"), *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("data", ["file", "file/below", "/proc/none"])
def test_a_data_directory_that_cannot_be_one_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    result = serve("--data", data, "--port", "0")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{data} cannot be used" in result.stderr
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


@pytest.mark.parametrize("ready", ["none/ready.json", "file/ready.json", "/proc/ready.json"])
def test_a_ready_file_that_cannot_be_written_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ready: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    result = serve("--data", "data", "--port", "0", "--ready-file", ready)
    assert result.exit_code == 2
    assert f"{Path(ready).parent} cannot be used" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_port_in_use_is_refused_and_a_free_one_is_proposed(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        result = serve("--data", str(tmp_path / "data"), "--port", str(taken.getsockname()[1]))
    assert result.exit_code == 2
    assert "--port 0" in result.stderr
    assert not (tmp_path / "data").exists()
