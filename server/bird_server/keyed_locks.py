"""A lock for each key that anybody holds or waits for, and none for the rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class KeyedLocks:
    """Serialises work on one key; work on different keys never waits. First come, first served."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    def __len__(self) -> int:
        return len(self._locks)

    def busy(self, key: str) -> bool:
        """Whether anybody holds the key or waits for it."""
        return key in self._locks

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncGenerator[None]:
        lock, users = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[key]
            if users == 1:
                del self._locks[key]
            else:
                self._locks[key] = (lock, users - 1)
