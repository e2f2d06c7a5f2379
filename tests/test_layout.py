"""The distribution: what its wheel holds, what each room needs, and what is said when the rest is not installed."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import textwrap
import tomllib
import zipfile
from collections.abc import Iterable
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {
    "bird_env": ROOT / "bird_env",
    "bird_server": ROOT / "server" / "bird_server",
    "bird_snapshots": ROOT / "snapshots" / "bird_snapshots",
}
#: Import names of what the extra `server` installs.
SERVER_MODULES = {
    "aiosqlite",
    "apsw",
    "fastapi",
    "httptools",
    "jinja2",
    "pyarrow",
    "pydantic_settings",
    "sqlalchemy",
    "starlette",
    "uvicorn",
    "uvloop",
}


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return found


def run(program: str, *arguments: str, blocked: Iterable[str] = ()) -> subprocess.CompletedProcess[str]:
    """A program in a Python of its own, in which some modules are not installed."""
    prologue = f"""
        import sys
        class Blocked:
            names = {sorted(blocked)!r}
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in self.names:
                    raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        sys.meta_path.insert(0, Blocked())
        sys.argv[1:] = {list(arguments)!r}
    """
    source = textwrap.dedent(prologue) + textwrap.dedent(program)
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False, timeout=60)


def ours(folder: Path) -> set[str]:
    """The files that belong into a package."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


# ---- the wheel and the source archive ----


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Wheel and source archive, by the backend that pip would call, in a process of its own and from this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    program = f"""
        import os
        os.chdir({str(ROOT)!r})
        from hatchling.build import build_sdist, build_wheel
        print(build_wheel({str(folder)!r}), build_sdist({str(folder)!r}))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    wheel, archive = done.stdout.split()
    return folder / wheel, folder / archive


def test_the_wheel_holds_the_three_packages_and_nothing_else(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        names = set(wheel.namelist())
        info = next(name for name in names if name.endswith("/METADATA")).split("/")[0]
        assert {name.split("/")[0] for name in names} == {*PACKAGES, info}
        for package, folder in PACKAGES.items():
            assert {name.removeprefix(f"{package}/") for name in names if name.startswith(f"{package}/")} == ours(
                folder
            )
            assert f"{package}/py.typed" in names
        assert {"bird_server/prompts/plain.j2", "bird_server/prompts/bird_rl.j2"} <= names
        points = wheel.read(f"{info}/entry_points.txt").decode()
        assert "bird-env = bird_env.cli:main" in points
        assert "server = bird_server.commands:register" in points
        assert f"{info}/licenses/LICENSE" in names
        assert "License-Expression: Apache-2.0" in wheel.read(f"{info}/METADATA").decode()


def test_the_source_archive_can_be_tested_and_holds_nothing_of_a_machine(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for wanted in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "tests/test_layout.py", "docs/scoring.md"):
        assert wanted in names
    tops = {name.split("/")[0] for name in names}
    allowed = {"bird_env", "server", "snapshots", "tests", "docs", "README.md", "CHANGELOG.md", "LICENSE"}
    assert tops - allowed <= {"pyproject.toml", "PKG-INFO", ".gitignore", ".hypothesis"} - {".hypothesis"}
    assert not any("__pycache__" in name or name.endswith((".pyc", ".sqlite", ".db")) for name in names)


def test_folders_of_rooms_are_no_packages() -> None:
    """An editable install would make them importable names."""
    for folder in ("server", "snapshots", "tests", "docker"):
        assert not (ROOT / folder / "__init__.py").exists()


# ---- what each room needs ----


def test_the_modules_blocked_below_are_those_of_the_extra() -> None:
    names = {
        name.split(";")[0].split(">")[0].split("[")[0].strip() for name in project()["optional-dependencies"]["server"]
    }
    assert {name.replace("-", "_") for name in names} | {"starlette"} == SERVER_MODULES
    base = {name.split(">")[0] for name in project()["dependencies"]}
    assert not base & names
    assert any("extra == 'server'" in line for line in requires("bird-env") or [])


def loaded_by(module: str) -> set[str]:
    done = run(
        f"import json; import {module}; print(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def test_the_package_for_users_loads_nothing_of_the_server() -> None:
    loaded = loaded_by("bird_env, bird_env.testing, bird_env.tasks, bird_env.cli")
    assert not loaded & (SERVER_MODULES | {"bird_server", "bird_snapshots"})


def test_the_command_lines_list_of_commands_loads_nothing_of_the_server() -> None:
    loaded = loaded_by("bird_env.cli; bird_env.cli.build()")
    assert not loaded & SERVER_MODULES


def test_the_storage_engine_loads_only_its_sqlite() -> None:
    loaded = loaded_by("bird_snapshots.store, bird_snapshots.testing")
    assert third_party(loaded) == {"apsw", "bird_snapshots"}


def test_a_scoring_process_loads_the_standard_library_and_scoring() -> None:
    loaded = loaded_by("bird_server.scoring.zygote, bird_server.scoring.child")
    assert third_party(loaded) == {"bird_server"}


def third_party(loaded: set[str]) -> set[str]:
    """What is loaded beyond the standard library and what a bare Python of this environment loads by itself."""
    bare = loaded_by("sys")
    return {name for name in loaded - bare if name not in sys.stdlib_module_names}


# ---- without the extra ----

COMMAND = "from bird_env.cli import main; main()"


def test_help_works_on_the_base_install_and_names_every_command() -> None:
    done = run(COMMAND, "--help", blocked=SERVER_MODULES)
    assert done.returncode == 0, done.stderr
    for name in ("serve", "demo", "databases", "tasks", "score", "conformance", "bench", "doctor"):
        assert name in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve"],
        ["demo"],
        ["databases", "list"],
        ["tasks", "list"],
        ["score", "--tasks", "t", "--databases", "d", "--predictions", "p", "--out", "o"],
        ["bench", "replicas"],
    ],
    ids=" ".join,
)
def test_a_command_that_needs_the_extra_names_it(arguments: list[str], tmp_path: Path) -> None:
    for name in ("t", "d", "p"):
        (tmp_path / name).write_text("")
    given = [str(tmp_path / each) if (tmp_path / each).exists() else each for each in arguments]
    done = run(f"import os; os.chdir({str(tmp_path)!r}); {COMMAND}", *given, blocked=SERVER_MODULES)
    assert done.returncode == 2, done.stderr
    assert "pip install 'bird-env[server]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_conformance_needs_no_extra(tmp_path: Path) -> None:
    """Scoring itself is the standard library's."""
    (tmp_path / "cases.jsonl").write_text("")
    done = run(COMMAND, "conformance", str(tmp_path / "cases.jsonl"), blocked=SERVER_MODULES)
    assert (done.returncode, done.stderr.count("holds no case")) == (2, 1)


def test_a_client_works_on_the_base_install() -> None:
    program = """
        import bird_env
        from bird_env.errors import ServerUnreachable
        client = bird_env.Client("http://127.0.0.1:9", retry_for_s=0)
        try:
            client.version()
        except ServerUnreachable as error:
            print(error.code)
    """
    done = run(program, blocked=SERVER_MODULES | {"bird_server", "bird_snapshots"})
    assert done.stdout.strip() == "server_unreachable", done.stderr
