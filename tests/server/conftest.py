"""What tests of the service share."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bird_server.clock import FakeClock
from bird_server.ledger.store import Ledger, sqlite_url
from bird_world import World, serving


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A small server with four places and short leases; its template is the same bytes at the end."""
    async with serving(tmp_path / "data", capacity=4, queue_wait_s=0.0, lease_s=60.0, max_lifetime_s=600.0) as opened:
        yield opened
        assert hashlib.sha256(opened.template.path.read_bytes()).hexdigest() == opened.template.digest


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    """An empty ledger, open."""
    opened = Ledger(sqlite_url(tmp_path / "ledger.db"), FakeClock())
    await opened.start()
    yield opened
    await opened.stop()
