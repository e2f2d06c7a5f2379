"""Where a client finds its service."""

from __future__ import annotations

import pytest

from bird_env import AsyncClient, Client
from bird_env._connection import DEFAULT_BASE_URL, Connection


def test_arguments_come_before_the_environment_and_that_before_the_default() -> None:
    environ = {"BIRD_ENV_URL": "http://env:1", "BIRD_ENV_TOKEN": "from-env"}
    assert str(Connection.resolve("http://arg:2", "from-arg", environ).base_url) == "http://arg:2"
    assert Connection.resolve("http://arg:2", "from-arg", environ).token == "from-arg"
    assert str(Connection.resolve(None, None, environ).base_url) == "http://env:1"
    assert Connection.resolve(None, None, environ).token == "from-env"
    assert str(Connection.resolve(None, None, {"BIRD_ENV_URL": "", "BIRD_ENV_TOKEN": ""}).base_url) == DEFAULT_BASE_URL
    assert Connection.resolve(None, None, {}).token is None


@pytest.mark.parametrize(
    "base_url",
    [
        "localhost:8000",
        "ftp://host",
        "http://",
        "host",
        "http://host?x=1",
        "http://host/#a",
        "http://[::1",
        "http://a:b",
    ],
)
def test_an_address_that_is_none_is_refused_at_once(base_url: str) -> None:
    with pytest.raises(ValueError, match="base_url must be like"):
        Client(base_url)


@pytest.mark.parametrize("token", ["secret\n", "sec ret", "sécret", "secret\x7f"])
def test_a_token_that_cannot_stand_in_a_header_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(ValueError, match="a token is") as caught:
        Connection.resolve(None, token, {})
    assert token not in str(caught.value)


def test_a_token_is_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIRD_ENV_TOKEN", "very-secret")
    connection = Connection.resolve(None, None, {"BIRD_ENV_TOKEN": "very-secret"})
    assert connection.headers()["Authorization"] == "Bearer very-secret"
    with Client() as client:
        assert "very-secret" not in repr(connection) + repr(client) + repr(AsyncClient())
    assert "Authorization" not in Connection.resolve(None, None, {}).headers()


def test_a_proxy_is_used_where_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert Connection.resolve("http://far.example", None, {}).proxy is None
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "near.example")
    assert Connection.resolve("http://far.example", None, {}).proxy == "http://proxy:3128"
    assert Connection.resolve("http://near.example:8000", None, {}).proxy is None
    for here in ("http://127.0.0.1:8000", "http://localhost:8000", "http://[::1]:8000", "http://127.1.2.3"):
        assert Connection.resolve(here, None, {}).proxy is None
    monkeypatch.delenv("http_proxy")
    monkeypatch.setenv("all_proxy", "http://proxy:3129")
    assert Connection.resolve("http://far.example", None, {}).proxy == "http://proxy:3129"
