"""Tokens and scopes."""

from __future__ import annotations

import pytest
from pydantic import SecretStr
from starlette.requests import HTTPConnection

from bird_env.errors import Unauthorized
from bird_server.auth import Authenticator, Scope
from bird_server.settings import Settings


def caller(**headers: str) -> HTTPConnection:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return HTTPConnection({"type": "http", "headers": raw})


@pytest.fixture
def authenticator() -> Authenticator:
    return Authenticator(Settings(run_token=SecretStr("r-token"), admin_token=SecretStr("a-token")))


def test_without_tokens_everybody_may_everything() -> None:
    authenticator = Authenticator(Settings())
    assert authenticator.keyless
    assert authenticator.scopes(caller()) == {Scope.RUN, Scope.ADMIN}


def test_a_token_gives_its_scopes(authenticator: Authenticator) -> None:
    assert authenticator.scopes(caller(authorization="Bearer r-token")) == {Scope.RUN}
    assert authenticator.scopes(caller(authorization="bearer a-token")) == {Scope.RUN, Scope.ADMIN}
    assert authenticator.scopes(caller(x_api_key="r-token")) == {Scope.RUN}


@pytest.mark.parametrize("value", ["", "Bearer", "Bearer ", "Bearer wrong", "Basic r-token", "Bearer r-token2"])
def test_anything_else_is_refused(authenticator: Authenticator, value: str) -> None:
    with pytest.raises(Unauthorized):
        authenticator.scopes(caller(authorization=value))


def test_tokens_do_not_show(authenticator: Authenticator) -> None:
    settings = Settings(run_token=SecretStr("r-token"))
    assert "r-token" not in repr(settings)
    assert "r-token" not in repr(authenticator)
