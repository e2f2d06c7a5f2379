"""Both clients keep the contract, against a server made for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bird_env import AsyncClient, Client
from bird_env.testing import ClientContract, World, blocking, in_process
from env.fake_server import WORLD, FakeServer


@pytest.fixture
def world() -> World:
    return WORLD


class TestClient(ClientContract):
    @pytest.fixture
    def client(self) -> Iterator[Client]:
        with in_process(FakeServer()) as transport, Client("http://fake", transport=transport) as client:
            yield client


class TestAsyncClient(ClientContract):
    @pytest.fixture
    def client(self) -> Iterator[Client]:
        with blocking(FakeServer()) as client:
            yield client


def public(kind: type) -> set[str]:
    renamed = {"__aenter__": "__enter__", "__aexit__": "__exit__"}
    return {renamed.get(name, name) for name in vars(kind) if not name.startswith("_") or name in renamed}


def test_both_clients_have_the_same_methods() -> None:
    assert public(Client) == public(AsyncClient) - {"__enter__", "__exit__"}
