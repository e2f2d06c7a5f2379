"""A database, a scratch folder and a running pool for the tests of scoring.

A pool costs a start of Python, so that a module shares one, and with it one event loop: `@SHARED_LOOP`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bird_server.scoring.pool import ScorerPool
from server.scoring.support import make_database


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return make_database(tmp_path / "db.sqlite")


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(scratch: Path) -> AsyncIterator[ScorerPool]:
    async with ScorerPool(scratch=scratch) as started:
        yield started
