"""What every request goes through, message by message; what it makes of errors is in test_problems."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from bird_server.middleware import RequestContext


class Exchange:
    """One request given to the middleware by hand."""

    def __init__(self, messages: list[Message], headers: list[tuple[bytes, bytes]] | None = None) -> None:
        self.waiting = list(messages)
        self.sent: list[Message] = []
        self.scope: Scope = {
            "type": "http",
            "method": "POST",
            "path": "/x",
            "query_string": b"",
            "headers": headers or [],
        }

    async def receive(self) -> Message:
        return self.waiting.pop(0) if self.waiting else {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    async def run(self, app: Any, max_body_bytes: int = 100) -> None:
        await RequestContext(app, max_body_bytes=max_body_bytes)(self.scope, self.receive, self.send)

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


class Reader:
    """An application that reads its body, remembers the messages, and answers 200."""

    def __init__(self) -> None:
        self.seen: list[Message] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            self.seen.append(message)
            if not message.get("more_body"):
                break
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-own", b"1")]})
        await send({"type": "http.response.body", "body": b"ok"})


def part(body: bytes, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_a_reply_has_the_request_id_and_the_version_beside_its_own_headers() -> None:
    exchange = Exchange([part(b"")], [(b"x-request-id", b"run7/step-3")])
    await exchange.run(Reader())
    assert exchange.headers[b"x-request-id"] == b"run7/step-3"
    assert exchange.headers[b"x-api-version"] == b"v1"
    assert exchange.headers[b"x-own"] == b"1"
    assert exchange.scope["bird_env.request_id"] == "run7/step-3"


@pytest.mark.parametrize("given", [b"", b"a b", b"\xff", b"x" * 129, b"a\r\nset-cookie: b"])
async def test_an_id_that_could_break_a_log_line_is_replaced(given: bytes) -> None:
    exchange = Exchange([part(b"")], [(b"x-request-id", given)])
    await exchange.run(Reader())
    assert exchange.headers[b"x-request-id"] != given
    assert len(exchange.headers[b"x-request-id"]) == 32


async def test_other_scopes_pass_untouched() -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    exchange = Exchange([])
    exchange.scope = {"type": "lifespan"}
    await exchange.run(app)
    assert seen == [{"type": "lifespan"}]


async def test_a_declared_body_is_not_held_back() -> None:
    """Within its declared bound the application reads as the parts come."""
    reader = Reader()
    exchange = Exchange([part(b"a", True), part(b"b")], [(b"content-length", b"2")])
    await exchange.run(reader)
    assert [message["body"] for message in reader.seen] == [b"a", b"b"]


@pytest.mark.parametrize("size", [100, 101])
async def test_the_bound_is_held_to_the_byte(size: int) -> None:
    for headers in ([(b"content-length", str(size).encode())], []):
        reader = Reader()
        exchange = Exchange([part(b"x" * 60, True), part(b"x" * (size - 60))], headers)
        await exchange.run(reader)
        if size <= 100:
            assert exchange.status == 200
            assert b"".join(message["body"] for message in reader.seen) == b"x" * size
        else:
            assert (exchange.status, reader.seen) == (413, [])
            body = json.loads(exchange.body)
            assert (body["code"], body["max_body_bytes"]) == ("body_too_large", 100)


async def test_an_endless_body_is_read_no_further_than_the_bound() -> None:
    exchange = Exchange([part(b"x" * 60, True)] * 1_000)
    await exchange.run(Reader())
    assert exchange.status == 413
    assert len(exchange.waiting) == 998


async def test_what_comes_after_a_body_of_undeclared_length_comes_through() -> None:
    """A handler that asks whether its client is still there gets the real answer."""
    reader = Reader()
    exchange = Exchange([part(b"a")])
    after: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await reader(scope, receive, send)
        after.append(await receive())

    await exchange.run(app)
    assert after == [{"type": "http.disconnect"}]


async def test_a_client_that_hangs_up_in_its_body_is_told_to_the_application() -> None:
    reader = Reader()
    exchange = Exchange([part(b"a", True), {"type": "http.disconnect"}])
    await exchange.run(reader)
    assert reader.seen[-1] == {"type": "http.disconnect"}


async def test_a_defect_before_the_reply_is_a_problem_and_after_its_start_is_raised() -> None:
    async def early(scope: Scope, receive: Receive, send: Send) -> None:
        raise KeyError("secret")

    exchange = Exchange([part(b"")])
    await exchange.run(early)
    assert exchange.status == 500
    assert b"secret" not in exchange.body
    assert json.loads(exchange.body)["request_id"].encode() == exchange.headers[b"x-request-id"]

    async def late(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise KeyError("secret")

    exchange = Exchange([part(b"")])
    with pytest.raises(KeyError):
        await exchange.run(late)
    assert exchange.status == 200


async def test_a_cancelled_request_is_no_defect() -> None:
    async def cancelled(scope: Scope, receive: Receive, send: Send) -> None:
        raise asyncio.CancelledError

    exchange = Exchange([part(b"")])
    with pytest.raises(asyncio.CancelledError):
        await exchange.run(cancelled)
    assert exchange.sent == []
