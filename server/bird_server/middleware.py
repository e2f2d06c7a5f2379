"""What every request goes through before a route sees it: an id, a bound on its body, and a net under the route.

HEAD is answered as GET would be, without the body: balancers and probes ask so, and no route need think of it.

Plain ASGI, so that no response is buffered and no handler is cancelled when its client hangs up.
"""

from __future__ import annotations

import re
import uuid

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bird_env.errors import BodyTooLarge
from bird_server.problems import defect_response, problem_response

_SAFE_ID = re.compile(r"[A-Za-z0-9._:@=+/~-]{1,128}")


class RequestContext:
    """Gives each request an id (the client's `X-Request-ID` if it is a plain one), echoed in the reply."""

    def __init__(self, app: ASGIApp, max_body_bytes: int) -> None:
        self._app = app
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"").decode("latin-1")
        request_id = given if _SAFE_ID.fullmatch(given) else uuid.uuid4().hex
        scope["bird_env.request_id"] = request_id
        head = scope["method"] == "HEAD"
        if head:
            scope = {**scope, "method": "GET"}

        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                own = [(b"x-request-id", request_id.encode("latin-1")), (b"x-api-version", b"v1")]
                message = {**message, "headers": [*message.get("headers", []), *own]}
            elif head:
                message = {**message, "body": b""}
            await send(message)

        try:
            await self._bounded(headers, scope, receive, send_with_id)
        except Exception as error:
            if started:
                raise
            await defect_response(error, Request(scope))(scope, receive, send_with_id)

    async def _bounded(self, headers: dict[bytes, bytes], scope: Scope, receive: Receive, send: Send) -> None:
        declared = headers.get(b"content-length")
        if declared is not None:
            if declared.isdigit() and int(declared) > self._max_body_bytes:
                await self._refuse(scope, receive, send)
            else:
                await self._app(scope, receive, send)  # the HTTP parser holds the body to what was declared
            return
        body = await self._read(receive)
        if body is None:
            await self._refuse(scope, receive, send)
        else:
            await self._app(scope, _replay(body, receive), send)

    async def _read(self, receive: Receive) -> list[Message] | None:
        """The messages of a body of undeclared length, or None when it passes the bound."""
        messages: list[Message] = []
        size = 0
        while True:
            message = await receive()
            messages.append(message)
            size += len(message.get("body", b""))
            if size > self._max_body_bytes:
                return None
            if message["type"] != "http.request" or not message.get("more_body", False):
                return messages

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = BodyTooLarge(f"The limit is {self._max_body_bytes} bytes.", max_body_bytes=self._max_body_bytes)
        await problem_response(error, Request(scope))(scope, receive, send)


def _replay(messages: list[Message], receive: Receive) -> Receive:
    waiting = iter(messages)

    async def replayed() -> Message:
        message = next(waiting, None)
        return message if message is not None else await receive()

    return replayed
