"""Threads that run work, few at once: a count of places apart from the count of threads.

Work that turns out to be long gives its place back while it goes on (the storage engine's gate sees to it that no more
of that runs than there are cores), so that short work behind it does not wait for its end. There are more threads than
places for that reason, and still so many only: when all are taken, work waits although places are free.

Python waits for its threads before it ends. Work that never ends would hold up the process for ever: `close` stops
waiting and tells what it was.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import Any, Generic, TypeVar

T = TypeVar("T")

GiveBack = Callable[[], None]


class _Job(Generic[T]):
    def __init__(self, name: str, work: Callable[[GiveBack], T]) -> None:
        self.name = name
        self.work = work
        self.future: Future[T] = Future()
        self.holds_place = True


class Places:
    """Runs work in threads. Thread-safe.

    Args:
        places: How much runs at once.
        spare: Threads beyond that, for work that has given its place back.
        thread_name_prefix: What the threads are called.
    """

    def __init__(self, places: int, spare: int, thread_name_prefix: str) -> None:
        self._pool = ThreadPoolExecutor(places + spare, thread_name_prefix)
        self._free = places
        self._queue: deque[_Job[Any]] = deque()
        self._running: set[_Job[Any]] = set()
        self._closed = False
        self._stuck = False
        self._guard = threading.Lock()

    def submit(self, name: str, work: Callable[[GiveBack], T]) -> Future[T]:
        """Run work once there is a place for it, first come, first served.

        Args:
            name: What it is, for people.
            work: Called with a function that gives the place back early.

        Raises:
            RuntimeError: It is closed.
        """
        job = _Job(name, work)
        with self._guard:
            if self._closed:
                raise RuntimeError("no more work is taken")
            if self._free == 0:
                self._queue.append(job)
                return job.future
            self._free -= 1
            self._start(job)
        return job.future

    def _start(self, job: _Job[T]) -> None:
        self._running.add(job)
        self._pool.submit(self._run, job)

    def _run(self, job: _Job[T]) -> None:
        try:
            if job.future.set_running_or_notify_cancel():
                self._answer(job)
        finally:
            with self._guard:
                self._running.discard(job)
            self._give_back(job)

    def _answer(self, job: _Job[T]) -> None:
        try:
            result = job.work(lambda: self._give_back(job))
        except BaseException as error:  # noqa: BLE001 - whoever waits for the result gets it
            with self._guard:
                if not job.future.done():
                    job.future.set_exception(error)
        else:
            with self._guard:
                if not job.future.done():
                    job.future.set_result(result)

    def _give_back(self, job: _Job[T]) -> None:
        with self._guard:
            if not job.holds_place:
                return
            job.holds_place = False
            if self._queue:
                self._start(self._queue.popleft())
            else:
                self._free += 1

    def refuse(self, error: Exception) -> None:
        """Take no more work; what has not begun fails with this error."""
        with self._guard:
            self._closed = True
            queued = list(self._queue)
            self._queue.clear()
        for job in queued:
            if job.future.set_running_or_notify_cancel():
                job.future.set_exception(error)

    def close(self, error: Exception, wait_s: float) -> Sequence[str]:
        """Wait for what runs, but not for ever.

        Returns:
            Names of what still runs. It goes on, and its future fails with the error.
        """
        self.refuse(error)
        deadline = time.monotonic() + wait_s
        with self._guard:
            running = list(self._running)
        wait_for([job.future for job in running], max(0.0, deadline - time.monotonic()))
        with self._guard:
            left = [job for job in running if not job.future.done()]
            for job in left:
                job.future.set_exception(error)
            stuck = self._stuck = self._stuck or bool(left)
        self._pool.shutdown(wait=not stuck)
        return [job.name for job in left]
