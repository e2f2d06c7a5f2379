"""A transport that fails on purpose, in front of one that works: what a client meets between itself and a server."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import httpx

Fault: TypeAlias = Callable[[httpx.Request, Callable[[], httpx.Response]], httpx.Response]
"""Gets the request and a way to pass it on; answers, or raises."""


def unreachable(error: type[httpx.TransportError]) -> Fault:
    """The request never arrives."""

    def fault(request: httpx.Request, deliver: Callable[[], httpx.Response]) -> httpx.Response:
        raise error("on purpose", request=request)

    return fault


def reply_lost(error: type[httpx.TransportError]) -> Fault:
    """The request is executed, its reply never arrives."""

    def fault(request: httpx.Request, deliver: Callable[[], httpx.Response]) -> httpx.Response:
        deliver()
        raise error("on purpose", request=request)

    return fault


def answers(status: int, content: bytes | str = b"", **headers: str) -> Fault:
    """Something else answers; an underscore in a header's name is a hyphen."""

    def fault(request: httpx.Request, deliver: Callable[[], httpx.Response]) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx.Response(status, content=content, headers=named)

    return fault


class Faulty(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Meets each request with the next fault, and after the last with the server. `requests` keeps what was sent."""

    def __init__(self, inner: httpx.BaseTransport, faults: Iterable[Fault]) -> None:
        self.inner = inner
        self.faults = list(faults)
        self.requests: list[httpx.Request] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        if self.faults:
            return self.faults.pop(0)(request, lambda: self.inner.handle_request(request))
        return self.inner.handle_request(request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return self.handle_request(request)
