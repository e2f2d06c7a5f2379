"""The retry policy: what is repeated, for how long, and with what waits."""

from __future__ import annotations

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bird_env import RetryPolicy, ServiceError
from bird_env._protocol import get_version
from bird_env._retry import Attempts, Done, Wait, is_passing
from bird_env.errors import BY_CODE, BirdEnvError, InternalError, InvalidRequest, Overloaded, Problem, ServerUnreachable
from bird_env.testing import set_testing

VERSION = b'{"version": "1", "python": "3", "engine_sqlite": "3", "scorer_sqlite": "3"}'


def of_problem(code: str, *, status: int, retryable: bool, retry_after_s: float | None = None) -> BirdEnvError:
    return BirdEnvError.from_problem(
        Problem(title="t", status=status, detail="d", code=code, retryable=retryable, retry_after_s=retry_after_s)
    )


PASSING = [
    httpx.ConnectError("x"),
    httpx.ConnectTimeout("x"),
    httpx.ReadTimeout("x"),
    httpx.ReadError("x"),
    httpx.WriteError("x"),
    httpx.RemoteProtocolError("Server disconnected without sending a response."),
    httpx.DecodingError("x"),
    of_problem("overloaded", status=503, retryable=True),
    of_problem("internal_error", status=500, retryable=True),
    of_problem("quota_of_a_newer_server", status=429, retryable=False),
    ServiceError("a proxy", status=502),
    ServiceError("a proxy", status=429),
]
LASTING = [
    httpx.UnsupportedProtocol("x"),
    httpx.LocalProtocolError("x"),
    of_problem("step_conflict", status=409, retryable=False),
    of_problem("trajectory_gone", status=410, retryable=False),
    of_problem("internal_error", status=500, retryable=False),
    ServiceError("not JSON", status=200),
    InvalidRequest("made by the client"),
    ValueError("not ours"),
]


@pytest.mark.parametrize("error", PASSING, ids=lambda error: f"{type(error).__name__}-{error}")
def test_what_may_pass_is_repeated(error: Exception) -> None:
    assert is_passing(error)
    assert RetryPolicy().wait_s(1, error, 0.0) is not None


@pytest.mark.parametrize("error", LASTING, ids=lambda error: f"{type(error).__name__}-{error}")
def test_what_lasts_is_not_repeated(error: Exception) -> None:
    assert not is_passing(error)
    assert RetryPolicy().wait_s(1, error, 0.0) is None


def test_every_error_of_the_wire_is_repeated_exactly_if_it_says_so() -> None:
    for code, kind in BY_CODE.items():
        assert is_passing(of_problem(code, status=400, retryable=kind.retryable)) is kind.retryable


@given(
    attempt=st.integers(1, 10**6),
    elapsed_s=st.floats(0, 400),
    drawn=st.floats(0, 1, exclude_max=True),
    retry_after_s=st.none() | st.floats(-10, 500),
)
def test_waits_are_bounded_and_within_the_budget(
    attempt: int, elapsed_s: float, drawn: float, retry_after_s: float | None
) -> None:
    asked_s = max(0.0, retry_after_s or 0.0)
    policy = RetryPolicy(retry_for_s=300.0, max_wait_s=15.0, random=lambda: drawn)
    wait = policy.wait_s(attempt, Overloaded(retry_after_s=retry_after_s, status=503), elapsed_s)
    if wait is None:
        assert elapsed_s + 15.0 + asked_s >= 300.0
    else:
        assert asked_s <= wait <= asked_s + 15.0
        assert elapsed_s + wait < 300.0


def test_waits_double_up_to_their_bound() -> None:
    policy = RetryPolicy(first_wait_s=1.0, max_wait_s=6.0, random=lambda: 0.5)
    waits = [policy.wait_s(attempt, httpx.ReadTimeout("x"), 0.0) for attempt in (1, 2, 3, 4, 5)]
    assert waits == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_a_defect_is_tried_a_few_times_only() -> None:
    policy = RetryPolicy(defect_attempts=3)
    defect = of_problem("internal_error", status=500, retryable=True)
    assert isinstance(defect, InternalError)
    assert [policy.wait_s(attempt, defect, 0.0) is None for attempt in (1, 2, 3)] == [False, False, True]


def test_no_budget_is_no_repeat() -> None:
    assert RetryPolicy(retry_for_s=0.0).wait_s(1, httpx.ReadTimeout("x"), 0.0) is None


def test_testing_takes_the_waits_out() -> None:
    policy = RetryPolicy(random=lambda: 0.9)
    overloaded = Overloaded(retry_after_s=60.0, status=503)
    with set_testing(attempts=3):
        assert [policy.wait_s(attempt, overloaded, 0.0) for attempt in (1, 2, 3)] == [0.0, 0.0, None]
        assert RetryPolicy(retry_for_s=0.0).wait_s(1, overloaded, 0.0) is None
        with set_testing(False):
            assert policy.wait_s(1, overloaded, 0.0) == 60.0 + 0.9 * policy.first_wait_s
    assert policy.wait_s(1, overloaded, 0.0) == 60.0 + 0.9 * policy.first_wait_s


def test_attempts_end_with_the_reply() -> None:
    attempts = Attempts(get_version(), RetryPolicy(random=lambda: 0.5), now_s=100.0)
    assert attempts.after(httpx.ReadTimeout("x"), 100.0) == Wait(0.1)
    done = attempts.after(httpx.Response(200, content=VERSION), 101.0)
    assert isinstance(done, Done)
    assert done.value.api == "v1"


def test_attempts_end_with_the_cause() -> None:
    call = get_version()
    attempts = Attempts(call, RetryPolicy(retry_for_s=10.0), now_s=0.0)
    last = httpx.ConnectError("All connection attempts failed")
    assert isinstance(attempts.after(httpx.ReadTimeout("x"), 1.0), Wait)
    with pytest.raises(
        ServerUnreachable, match=r"GET /version: no answer after 2 attempts in 11\.0 s; .*ConnectError"
    ) as it:
        attempts.after(last, 11.0)
    assert it.value.__cause__ is last
    assert it.value.fields == {"attempts": 2, "request_id": call.request_id}


def test_attempts_end_with_the_last_error() -> None:
    attempts = Attempts(get_version(), RetryPolicy(retry_for_s=10.0), now_s=0.0)
    assert isinstance(attempts.after(httpx.ReadTimeout("x"), 0.0), Wait)
    with pytest.raises(ServiceError, match="502"):
        attempts.after(httpx.Response(502, content=b"<html>"), 11.0)


def test_what_cannot_be_sent_is_the_callers() -> None:
    with pytest.raises(InvalidRequest, match="cannot be sent"):
        Attempts(get_version(), RetryPolicy(), 0.0).after(httpx.LocalProtocolError("Illegal header value"), 0.0)
