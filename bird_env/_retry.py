"""When a call is repeated, and after how long. Pure: no clock and no sleep of its own, chance is injected.

`RetryPolicy.wait_s(attempt, error, elapsed_s)` says how long to wait before the next attempt, or None: stop. Repeated
are faults of the way (no connection, a read timeout, a keep-alive socket closed under the request) and answers that say
so themselves: problems with `retryable`, 429, and a proxy's 429, 500, 502, 503 or 504. Nothing else ever is. Every
repeat carries the key of the first attempt, so that the server executes it at most once.

`Attempts` applies the policy to one call for both clients: they send, sleep and hand in what came of it.

Waits grow exponentially and are drawn from zero to their bound ("full jitter"), so that a thousand rollouts that lost
their server together do not come back together:
https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Generic, TypeVar

import httpx

from bird_env._protocol import Call
from bird_env.errors import BirdEnvError, InternalError, InvalidRequest, ServerUnreachable

T = TypeVar("T")

#: Statuses of something between client and server that may pass.
PASSING_STATUSES = frozenset({429, 500, 502, 503, 504})

#: Faults in what the client itself is about to send: the same request would fail again.
OWN_FAULTS = (httpx.UnsupportedProtocol, httpx.LocalProtocolError)

#: Beyond it 2**n overflows a float, and the wait's bound was reached long before.
_MAX_DOUBLINGS = 64


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a call is repeated.

    Attributes:
        retry_for_s: Seconds from the first attempt within which a new one may start; 0: never repeat.
        first_wait_s: Bound of the first wait in seconds; it doubles with each attempt.
        max_wait_s: Bound of every wait in seconds. A server's Retry-After is honoured beyond it, and jittered by it.
        defect_attempts: Attempts at a call that the service fails with `internal_error`: a defect repeats itself.
        random: Uniform in [0, 1).
    """

    retry_for_s: float = 300.0
    first_wait_s: float = 0.2
    max_wait_s: float = 15.0
    defect_attempts: int = 3
    random: Callable[[], float] = field(default=random.random, repr=False)

    def wait_s(self, attempt: int, error: Exception, elapsed_s: float) -> float | None:
        """Seconds to wait after the attempt (counted from 1) that failed with `error`; None: stop."""
        if not is_passing(error):
            return None
        if isinstance(error, InternalError) and attempt >= self.defect_attempts:
            return None
        if _testing.attempts is not None:
            return 0.0 if attempt < _testing.attempts and self.retry_for_s > 0 else None
        bound = min(self.max_wait_s, self.first_wait_s * 2.0 ** min(attempt - 1, _MAX_DOUBLINGS))
        wait = self.random() * bound
        if isinstance(error, BirdEnvError) and error.retry_after_s is not None:
            wait += max(0.0, error.retry_after_s)
        return wait if elapsed_s + wait < self.retry_for_s else None


def is_passing(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, BirdEnvError):
        if error.problem is None:
            return error.fields.get("status") in PASSING_STATUSES
        return error.problem.retryable or error.problem.status == 429
    return isinstance(error, httpx.TransportError | httpx.DecodingError) and not isinstance(error, OWN_FAULTS)


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    value: T


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float


class Attempts(Generic[T]):
    """The attempts at one call: give it what came of each, get the reply, the wait before the next, or the error."""

    def __init__(self, call: Call[T], policy: RetryPolicy, now_s: float) -> None:
        self._call = call
        self._policy = policy if call.retry_for_s is None else replace(policy, retry_for_s=call.retry_for_s)
        self._started_s = now_s
        self._attempt = 0

    def after(self, outcome: httpx.Response | httpx.RequestError, now_s: float) -> Done[T] | Wait:
        """
        Raises:
            ServerUnreachable: No answer within the budget; the cause is what httpx said last.
            BirdEnvError: The service refused, or kept failing beyond the budget.
        """
        self._attempt += 1
        if isinstance(outcome, httpx.RequestError):
            if (wait := self._wait(outcome, now_s)) is None:
                raise self._unreachable(outcome, now_s) from outcome
            return wait
        try:
            return Done(self._call.parse(outcome))
        except BirdEnvError as error:
            if (wait := self._wait(error, now_s)) is None:
                raise
            return wait

    def _wait(self, error: Exception, now_s: float) -> Wait | None:
        seconds = self._policy.wait_s(self._attempt, error, now_s - self._started_s)
        return None if seconds is None else Wait(seconds)

    def _unreachable(self, error: httpx.RequestError, now_s: float) -> BirdEnvError:
        said = f"{type(error).__name__}: {error}".rstrip(": ")
        call = f"{self._call.method} {self._call.path}"
        if isinstance(error, OWN_FAULTS):
            return InvalidRequest(f"{call} cannot be sent: {said}")
        return ServerUnreachable(
            f"{call}: no answer after {self._attempt} attempts in {now_s - self._started_s:.1f} s; the last: {said}",
            attempts=self._attempt,
            request_id=self._call.request_id,
        )


@dataclass(slots=True)
class _Switch:
    attempts: int | None = None


_testing = _Switch()


class _Restore(AbstractContextManager[None]):
    def __init__(self, before: int | None) -> None:
        self._before = before

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _testing.attempts = self._before


def set_testing(testing: bool = True, *, attempts: int = 10) -> AbstractContextManager[None]:
    """Take the waits out of every retry of this process, for tests: up to `attempts` attempts, one right after another.

    Holds until it is called again with False, or until the end of a `with` block around it. Retry-After is not waited
    for either; a policy with `retry_for_s=0` still never repeats. One switch for the process is the point: a test
    cannot reach every client. (After stamina's function of the same name.)
    """
    restore = _Restore(_testing.attempts)
    _testing.attempts = attempts if testing else None
    return restore
