"""`Idempotency-Key`: done once, kept when it went well, refused for another body."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from bird_env.errors import InvalidRequest, KeyReused, ScorerFault
from bird_server.clock import FakeClock
from bird_server.idempotency import MAX_KEY_CHARS, StoredReplies
from bird_server.ledger.store import Ledger, sqlite_url
from bird_server.wire import raw_reply


@pytest.fixture
def replies(ledger: Ledger) -> StoredReplies:
    return StoredReplies(ledger, FakeClock())


def request(key: str | None, body: bytes = b"{}", path: str = "/v1/scores", method: str = "POST") -> Request:
    async def receive() -> Message:
        return {"type": "http.request", "body": body}

    headers = [] if key is None else [(b"idempotency-key", key.encode("latin-1"))]
    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": headers}
    scope |= {"server": ("test", 80), "scheme": "http"}
    return Request(scope, receive)


class Handler:
    """Counts how often it was run; each run has its own reply."""

    def __init__(self, status: int = 200) -> None:
        self.runs = 0
        self.status = status

    async def __call__(self) -> Response:
        self.runs += 1
        await asyncio.to_thread(int)  # lets others run meanwhile
        return raw_reply(f'{{"run":{self.runs}}}', self.status, X_Own="a")


async def test_without_a_key_every_request_is_its_own(replies: StoredReplies) -> None:
    handler = Handler()
    for number in (1, 2):
        assert (await replies.once(request(None), handler)).body == f'{{"run":{number}}}'.encode()


async def test_a_repeat_gets_the_stored_reply_and_is_told_so(replies: StoredReplies) -> None:
    handler = Handler(201)
    first, again = [await replies.once(request("k"), handler) for _ in range(2)]
    assert (first.body, first.status_code) == (again.body, again.status_code) == (b'{"run":1}', 201)
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert handler.runs == 1


async def test_a_repeat_beside_the_first_waits_for_it(replies: StoredReplies) -> None:
    handler = Handler()
    found = await asyncio.gather(*(replies.once(request("k"), handler) for _ in range(5)))
    assert {response.body for response in found} == {b'{"run":1}'}
    assert handler.runs == 1


async def test_another_body_under_the_key_is_refused(replies: StoredReplies) -> None:
    handler = Handler()
    await replies.once(request("k", b'{"a":1}'), handler)
    with pytest.raises(KeyReused):
        await replies.once(request("k", b'{"a":2}'), handler)
    assert handler.runs == 1


async def test_a_key_belongs_to_its_route(replies: StoredReplies) -> None:
    handler = Handler()
    for path in ("/v1/scores", "/v1/trajectories/a/score", "/v1/trajectories/b/score"):
        await replies.once(request("k", path=path), handler)
    await replies.once(request("k", method="PUT"), handler)
    assert handler.runs == 4


async def test_only_a_success_is_kept(replies: StoredReplies) -> None:
    refused, handler = Handler(409), Handler()
    await replies.once(request("k"), refused)

    async def fails() -> Response:
        raise ScorerFault

    with pytest.raises(ScorerFault):
        await replies.once(request("k"), fails)
    assert (await replies.once(request("k"), handler)).body == b'{"run":1}'
    assert (refused.runs, handler.runs) == (1, 1)


@pytest.mark.parametrize(
    ("key", "taken"), [("", False), ("k" * MAX_KEY_CHARS, True), ("k" * (MAX_KEY_CHARS + 1), False), ("é", True)]
)
async def test_a_key_has_a_length(replies: StoredReplies, key: str, taken: bool) -> None:
    handler = Handler()
    if taken:
        assert (await replies.once(request(key), handler)).status_code == 200
    else:
        with pytest.raises(InvalidRequest):
            await replies.once(request(key), handler)
    assert handler.runs == taken


async def test_a_key_outlives_the_server(tmp_path: Path) -> None:
    handler, clock = Handler(), FakeClock()
    for _ in range(2):
        ledger = Ledger(sqlite_url(tmp_path / "ledger.db"), clock)
        await ledger.start()
        assert (await StoredReplies(ledger, clock).once(request("k"), handler)).body == b'{"run":1}'
        await ledger.stop()
    assert handler.runs == 1
