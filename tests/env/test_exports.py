"""`bird_env.__all__` is the public surface, exactly, and importing it needs the base install only."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import bird_env
import bird_env.testing


def imported(module: str) -> set[str]:
    """The names that a module's source imports or defines at its top."""
    source = Path(sys.modules[module].__file__ or "").read_text()
    found: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
    return found


def test_the_list_is_exact_and_sorted() -> None:
    for module in (bird_env, bird_env.testing):
        assert set(module.__all__) == imported(module.__name__)
        assert len(module.__all__) == len(set(module.__all__))
        assert all(hasattr(module, name) for name in module.__all__)
    assert bird_env.__all__ == sorted(bird_env.__all__)


def test_nothing_public_is_private() -> None:
    for name in bird_env.__all__:
        assert not name.startswith("_")


def test_importing_needs_the_base_install_only_and_changes_nothing() -> None:
    """In a process of its own: this one has the server's half loaded already."""
    program = (
        "import sys, os, threading, logging\n"
        "before = dict(os.environ), list(logging.root.handlers), threading.active_count()\n"
        "import bird_env, bird_env.testing, bird_env.rollout\n"
        "assert before == (dict(os.environ), list(logging.root.handlers), threading.active_count())\n"
        "heavy = {'fastapi', 'starlette', 'uvicorn', 'apsw', 'sqlalchemy', 'jinja2', 'pyarrow', 'pytest',"
        " 'bird_server', 'bird_snapshots'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
