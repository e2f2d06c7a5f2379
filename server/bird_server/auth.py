"""Who may do what: bearer tokens with scopes, compared in constant time.

`run` drives trajectories; `admin` may also score arbitrary solutions. Without any token configured every caller has
every scope, which `bird-env serve` allows on loopback only (or with `--insecure`).
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from enum import StrEnum

from starlette.requests import HTTPConnection, Request

from bird_env.errors import Forbidden, Unauthorized
from bird_server.settings import Settings


class Scope(StrEnum):
    RUN = "run"
    ADMIN = "admin"


class Authenticator:
    """Maps a request's token to its scopes."""

    def __init__(self, settings: Settings) -> None:
        self._tokens: list[tuple[bytes, frozenset[Scope]]] = []
        if settings.run_token is not None:
            self._tokens.append((settings.run_token.get_secret_value().encode(), frozenset({Scope.RUN})))
        if settings.admin_token is not None:
            self._tokens.append((settings.admin_token.get_secret_value().encode(), frozenset(Scope)))

    @property
    def keyless(self) -> bool:
        return not self._tokens

    def scopes(self, connection: HTTPConnection) -> frozenset[Scope]:
        """The scopes of the caller.

        Raises:
            Unauthorized: No token, or an unknown one, where tokens are configured.
        """
        if self.keyless:
            return frozenset(Scope)
        given = _token(connection)
        if given is None:
            raise Unauthorized()
        found: frozenset[Scope] | None = None
        for token, scopes in self._tokens:  # every token is compared, so that time tells nothing
            if hmac.compare_digest(token, given):
                found = scopes
        if found is None:
            raise Unauthorized("The token is not known to this server.")
        return found


def _token(connection: HTTPConnection) -> bytes | None:
    """`Authorization: Bearer`, or `X-API-Key` as clients of other environment services send it."""
    scheme, _, value = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and value.strip():
        return value.strip().encode()
    key = connection.headers.get("x-api-key")
    return key.encode() if key else None


def check_scope(request: Request, scope: Scope) -> None:
    """Refuse a caller without the scope.

    Raises:
        Unauthorized, Forbidden.
    """
    authenticator: Authenticator = request.app.state.authenticator
    if scope not in authenticator.scopes(request):
        raise Forbidden(f"This needs the scope `{scope}`.", required_scope=str(scope))


def requires(scope: Scope) -> Callable[[Request], Awaitable[None]]:
    """A route dependency that refuses callers without the scope. A coroutine: plain functions are run in a thread."""

    async def check(request: Request) -> None:
        check_scope(request, scope)

    return check
