"""Transports for a thousand rollouts at once: many lanes, each a pool of one connection, taken and given back in O(1).

httpx's pool looks at all its connections, each idle socket with a system call, at every request: with 1,024 requests in
flight one of them cost the client 9 ms of CPU, against 2 ms with one connection a pool (docs/client.md, "Connections").
So a request takes a free lane (the one used last, whose connection is most likely alive), or opens another one up to
`max_lanes`, or waits for one; a lane goes back when its response has been read. A lane idle for longer than
`keepalive_s` is closed: sooner than the server would, so that a request seldom meets a socket that is being closed.
Left out: repeating the request when it does (`_retry`).
"""

from __future__ import annotations

import ssl
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Generic, TypeVar

import anyio
import httpx

from bird_env._connection import Connection

L = TypeVar("L")

#: Connections at once; each is a descriptor here and one at the server.
MAX_LANES = 2048
#: Shorter than `bird-env serve` keeps idle connections (120 s) and than most proxies do (60 s and more).
KEEPALIVE_S = 30.0


class Lanes(Generic[L]):
    """Which lanes are free, the one used last first. No I/O; not thread-safe."""

    def __init__(self, keepalive_s: float) -> None:
        self._keepalive_s = keepalive_s
        self._free: deque[tuple[float, L]] = deque()

    def take(self) -> L | None:
        """The free lane that was used last, or None: open another."""
        return self._free.pop()[1] if self._free else None

    def give(self, lane: L, now_s: float) -> list[L]:
        """Make a lane free; returns those to close, which nobody used for long."""
        self._free.append((now_s, lane))
        stale: list[L] = []
        while now_s - self._free[0][0] > self._keepalive_s:
            stale.append(self._free.popleft()[1])
        return stale

    def drain(self) -> list[L]:
        lanes = [lane for _, lane in self._free]
        self._free.clear()
        return lanes


def _limits(keepalive_s: float) -> httpx.Limits:
    return httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=keepalive_s)


def _tls(connection: Connection) -> ssl.SSLContext | bool:
    # One context for all lanes: loading the certificates takes tens of milliseconds. Plain HTTP needs none.
    return httpx.create_ssl_context() if connection.base_url.scheme == "https" or connection.proxy else False


class LaneTransport(httpx.BaseTransport):
    """A thread-safe transport of many lanes.

    Args:
        open_lane: Makes a lane; its pool should hold one connection.
        max_lanes: Lanes in use at once; a request beyond waits for one.
        keepalive_s: Seconds after which an idle lane is closed.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        open_lane: Callable[[], httpx.BaseTransport],
        *,
        max_lanes: int = MAX_LANES,
        keepalive_s: float = KEEPALIVE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_lane = open_lane
        self._room = threading.Semaphore(max_lanes)
        self._lock = threading.Lock()
        self._lanes: Lanes[httpx.BaseTransport] = Lanes(keepalive_s)
        self._clock = clock
        self._closed = False

    @classmethod
    def to(
        cls, connection: Connection, *, max_lanes: int = MAX_LANES, keepalive_s: float = KEEPALIVE_S
    ) -> LaneTransport:
        tls, limits = _tls(connection), _limits(keepalive_s)
        return cls(
            lambda: httpx.HTTPTransport(verify=tls, limits=limits, proxy=connection.proxy),
            max_lanes=max_lanes,
            keepalive_s=keepalive_s,
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self._room.acquire()
        try:
            with self._lock:
                lane = self._lanes.take()
            lane = lane or self._open_lane()
        except BaseException:
            self._room.release()
            raise
        try:
            response = lane.handle_request(request)
        except BaseException:
            self._give(lane)
            raise
        response.stream = _Stream(response.stream, lambda: self._give(lane))
        return response

    def _give(self, lane: httpx.BaseTransport) -> None:
        with self._lock:
            stale = [lane] if self._closed else self._lanes.give(lane, self._clock())
        self._room.release()
        for old in stale:
            old.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            lanes = self._lanes.drain()
        for lane in lanes:
            lane.close()


class _Stream(httpx.SyncByteStream):
    """A response's body whose end gives the lane back, once."""

    def __init__(self, inner: httpx.SyncByteStream | httpx.AsyncByteStream, give: Callable[[], None]) -> None:
        if not isinstance(inner, httpx.SyncByteStream):
            raise TypeError("a synchronous transport must answer with a synchronous stream")
        self._inner = inner
        self._give: Callable[[], None] | None = give

    def __iter__(self) -> Iterator[bytes]:
        yield from self._inner

    def close(self) -> None:
        try:
            self._inner.close()
        finally:
            give, self._give = self._give, None
            if give is not None:
                give()


class AsyncLaneTransport(httpx.AsyncBaseTransport):
    """`LaneTransport` for one event loop."""

    def __init__(
        self,
        open_lane: Callable[[], httpx.AsyncBaseTransport],
        *,
        max_lanes: int = MAX_LANES,
        keepalive_s: float = KEEPALIVE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_lane = open_lane
        self._room = anyio.Semaphore(max_lanes, fast_acquire=True)
        self._lanes: Lanes[httpx.AsyncBaseTransport] = Lanes(keepalive_s)
        self._clock = clock
        self._closed = False

    @classmethod
    def to(
        cls, connection: Connection, *, max_lanes: int = MAX_LANES, keepalive_s: float = KEEPALIVE_S
    ) -> AsyncLaneTransport:
        tls, limits = _tls(connection), _limits(keepalive_s)
        return cls(
            lambda: httpx.AsyncHTTPTransport(verify=tls, limits=limits, proxy=connection.proxy),
            max_lanes=max_lanes,
            keepalive_s=keepalive_s,
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await self._room.acquire()
        try:
            lane = self._lanes.take() or self._open_lane()
        except BaseException:
            self._room.release()
            raise
        try:
            response = await lane.handle_async_request(request)
        except BaseException:
            await self.give(lane)
            raise
        response.stream = _AsyncStream(response.stream, self, lane)
        return response

    async def give(self, lane: httpx.AsyncBaseTransport) -> None:
        stale = [lane] if self._closed else self._lanes.give(lane, self._clock())
        self._room.release()
        if stale:
            # A rollout that is cancelled while it closes idle connections must not leave them half closed.
            with anyio.CancelScope(shield=True):
                for old in stale:
                    await old.aclose()

    async def aclose(self) -> None:
        self._closed = True
        for lane in self._lanes.drain():
            await lane.aclose()


class _AsyncStream(httpx.AsyncByteStream):
    """`_Stream` for an asynchronous response."""

    def __init__(
        self,
        inner: httpx.SyncByteStream | httpx.AsyncByteStream,
        transport: AsyncLaneTransport,
        lane: httpx.AsyncBaseTransport,
    ) -> None:
        if not isinstance(inner, httpx.AsyncByteStream):
            raise TypeError("an asynchronous transport must answer with an asynchronous stream")
        self._inner = inner
        self._transport = transport
        self._lane: httpx.AsyncBaseTransport | None = lane

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._inner:
            yield part

    async def aclose(self) -> None:
        try:
            await self._inner.aclose()
        finally:
            lane, self._lane = self._lane, None
            if lane is not None:
                await self._transport.give(lane)
