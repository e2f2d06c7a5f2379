"""`Idempotency-Key`: a POST that names one is done once, and its reply is kept.

For requests that carry no key of their own (a step has its index, a create its trajectory_id, a reset its epoch). A
repeat with the same body gets the stored reply with `Idempotent-Replayed: true`, or waits for the one that is at
work; with another body it is refused. Only successes are kept: a failed request may be tried again under its key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from bird_env.errors import InvalidRequest, KeyReused
from bird_server.clock import Clock
from bird_server.keyed_locks import KeyedLocks
from bird_server.ledger.store import INSERT_REPLY, Ledger, Write
from bird_server.wire import raw_reply

HEADER = "idempotency-key"
REPLAYED = {"Idempotent_Replayed": "true"}
MAX_KEY_CHARS = 200


class StoredReplies:
    """Replies by (method, path, key)."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._locks = KeyedLocks()

    async def once(self, request: Request, run: Callable[[], Awaitable[Response]]) -> Response:
        """Run a handler under the request's key, or give its stored reply; without a key, just run it.

        Raises:
            KeyReused: The key was used with another body.
            InvalidRequest: The key is empty or too long.
        """
        key = request.headers.get(HEADER)
        if key is None:
            return await run()
        if not 0 < len(key) <= MAX_KEY_CHARS:
            raise InvalidRequest(f"An Idempotency-Key has 1 to {MAX_KEY_CHARS} characters.")
        name = f"{request.method} {hashlib.sha256(request.url.path.encode()).hexdigest()[:32]} {key}"
        digest = hashlib.sha256(await request.body()).hexdigest()
        async with self._locks.hold(name):
            stored = await self._ledger.stored_reply(name)
            if stored is not None:
                if stored.fingerprint != digest:
                    raise KeyReused()
                return raw_reply(stored.body, stored.status, **REPLAYED)
            response = await run()
            if response.status_code < 300:
                await self._ledger.write(
                    Write(
                        INSERT_REPLY,
                        {
                            "key": name,
                            "fingerprint": digest,
                            "status": response.status_code,
                            "body": bytes(response.body).decode("ascii"),
                            "created_at": self._clock.now(),
                        },
                    )
                )
            return response
