"""What every test shares: the versions in the report's header, a scrubbed environment, and the shared material."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import apsw
import pytest

SHARED = Path(__file__).resolve().parents[1].parent / "shared"


def pytest_report_header() -> str:
    return f"engine SQLite {apsw.sqlite_lib_version()}, scorer SQLite {sqlite3.sqlite_version}"


@pytest.fixture(autouse=True)
def scrubbed_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the machine reaches a test."""
    for name in list(os.environ):
        if name.startswith("BIRD_ENV_"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real tasks and official verdicts beside the checkout; tests that need it skip without it."""
    if not SHARED.is_dir():
        pytest.skip(f"the shared test material is not at {SHARED.name}/ beside the checkout")
    return SHARED
