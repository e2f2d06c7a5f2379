"""A database, a scratch folder and a running pool for the tests of scoring."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bird_server.scoring.pool import ScorerPool
from server.scoring.support import make_database


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return make_database(tmp_path / "db.sqlite")


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture
async def pool(scratch: Path) -> AsyncIterator[ScorerPool]:
    async with ScorerPool(scratch=scratch) as started:
        yield started
