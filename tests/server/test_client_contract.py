"""Both clients keep the contract with the real service, in this process; one server for each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bird_env import Client
from bird_env.testing import ClientContract, World, blocking, in_process
from bird_server.app import create_app
from bird_server.settings import Settings
from bird_world import GOLD, populate

WORLD = World(database="shop", task_id="read_1", right=[GOLD], wrong=["SELECT a FROM t WHERE b < 15"])


@pytest.fixture
def world() -> World:
    return WORLD


@pytest.fixture(scope="module", params=["sync", "async"])
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    root = tmp_path_factory.mktemp("data")
    populate(root)
    app = create_app(Settings(data=root, sql_threads=2))
    if request.param == "async":
        with blocking(app) as made:
            yield made
    else:
        with in_process(app) as transport, Client("http://real", transport=transport) as made:
            yield made


class TestClients(ClientContract):
    """The suite, as it is."""
