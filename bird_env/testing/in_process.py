"""Any ASGI application under a client, in this process and without sockets: its lifespan runs, its requests do too.

`in_process` keeps the application on an event loop in a thread of its own (an anyio portal) and gives a transport for
the synchronous client, usable from many threads; `in_process_async` runs it on the caller's asyncio loop. An exception
that escapes the application is its 500, as it is behind a real server, unless `raise_app_exceptions` asks for it.
Left out: read timeouts, and disconnects of the client in the middle of a request.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, TypeAlias, cast

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal

from bird_env.async_client import AsyncClient
from bird_env.client import Client
from bird_env.trajectory import AsyncTrajectoryHandle

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

#: No request leaves the process, whatever host it names.
BASE_URL = "http://in-process"


class LifespanFailed(RuntimeError):
    """The application did not start, or did not stop; its own exception, if it had one, is the cause."""


class _Lifespan:
    """The ASGI lifespan protocol, driven from outside: https://asgi.readthedocs.io/en/latest/specs/lifespan.html."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.state: dict[str, Any] = {}
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        self._said: dict[str, Message] = {}
        self._heard = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="lifespan")
        if not await self._tell("startup"):
            # An application without a lifespan raises or returns at once; servers run it without one.
            await asyncio.wait([self._task])
            self._task.exception()
            self._task = None

    async def stop(self) -> None:
        if self._task is None:
            return
        said = await self._tell("shutdown")
        await asyncio.wait([self._task])
        error = self._task.exception()
        if error is not None or not said:
            raise LifespanFailed("the application failed to shut down") from error

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self.state}
        await self._app(scope, self._inbox.get, self._hear)

    async def _hear(self, message: Message) -> None:
        self._said[message["type"]] = message
        self._heard.set()

    async def _tell(self, phase: str) -> bool:
        """Whether the application answered; raises if it answered that it failed."""
        if self._task is None:
            raise RuntimeError("the lifespan was not started")
        self._heard.clear()
        self._inbox.put_nowait({"type": f"lifespan.{phase}"})
        heard = asyncio.create_task(self._heard.wait(), name="lifespan answer")
        await asyncio.wait([heard, self._task], return_when=asyncio.FIRST_COMPLETED)
        heard.cancel()
        if f"lifespan.{phase}.complete" in self._said:
            return True
        failed = self._said.get(f"lifespan.{phase}.failed")
        if failed is None:
            return False
        await asyncio.wait([self._task])
        raise LifespanFailed(failed.get("message") or f"the application failed at {phase}") from self._task.exception()


@asynccontextmanager
async def in_process_async(
    app: ASGIApp, *, raise_app_exceptions: bool = False
) -> AsyncGenerator[httpx.AsyncBaseTransport]:
    """A transport for `AsyncClient(transport=…)` over an application that runs for as long as the block does.

    Raises:
        LifespanFailed: The application did not start, or did not stop.
    """
    lifespan = _Lifespan(app)
    await lifespan.start()

    async def with_state(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        await app({**scope, "state": dict(lifespan.state)}, receive, send)

    try:
        yield httpx.ASGITransport(with_state, raise_app_exceptions=raise_app_exceptions)
    finally:
        await lifespan.stop()


class _PortalTransport(httpx.BaseTransport):
    """Hands every request to the application's own loop."""

    def __init__(self, portal: BlockingPortal, inner: httpx.AsyncBaseTransport) -> None:
        self._portal = portal
        self._inner = inner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        content = request.read()
        return self._portal.call(self._answer, request, content)

    async def _answer(self, request: httpx.Request, content: bytes) -> httpx.Response:
        inner = httpx.Request(request.method, request.url, headers=request.headers, content=content)
        response = await self._inner.handle_async_request(inner)
        if not isinstance(response.stream, httpx.AsyncByteStream):
            raise TypeError("an asynchronous transport must answer with an asynchronous stream")
        body = b"".join([part async for part in response.stream])
        return httpx.Response(response.status_code, headers=response.headers, stream=httpx.ByteStream(body))


@contextmanager
def in_process(app: ASGIApp, *, raise_app_exceptions: bool = False) -> Generator[httpx.BaseTransport]:
    """A transport for `Client(BASE_URL, transport=…)` over an application that runs for as long as the block does.

    Raises:
        LifespanFailed: The application did not start, or did not stop.
    """
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(in_process_async(app, raise_app_exceptions=raise_app_exceptions)) as inner,
    ):
        yield _PortalTransport(portal, inner)


class _Blocking:
    """An asynchronous object whose methods are called without await, each on the portal's loop."""

    def __init__(self, portal: BlockingPortal, target: object) -> None:
        self._portal = portal
        self._target = target

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(found, *args, **kwargs)

        return call

    def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        async def run() -> Any:
            result = method(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result

        result = self._portal.call(run)
        if isinstance(result, AsyncTrajectoryHandle):
            return _Blocking(self._portal, result)
        if hasattr(result, "__anext__"):
            return self._iterate(result)
        return result

    def _iterate(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        end = object()

        async def following() -> Any:
            return await anext(items, end)

        while (item := self._portal.call(following)) is not end:
            yield item

    def __enter__(self) -> _Blocking:
        self._call(self._managed().__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._managed().__aexit__, kind, error, trace)

    def _managed(self) -> AbstractAsyncContextManager[object]:
        return cast("AbstractAsyncContextManager[object]", self._target)


@contextmanager
def blocking(app: ASGIApp, *, raise_app_exceptions: bool = False, **options: Any) -> Generator[Client]:
    """An `AsyncClient` of an application, with the methods of a `Client`; `options` are the client's own."""
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(in_process_async(app, raise_app_exceptions=raise_app_exceptions)) as inner,
    ):

        async def connect() -> AsyncClient:
            return AsyncClient(BASE_URL, transport=inner, **options)

        with _Blocking(portal, portal.call(connect)) as client:
            yield cast("Client", client)
