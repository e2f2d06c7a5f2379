"""Both clients between faults and a server: every call at most once, every failure typed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, cast

import httpx
import pytest
from anyio.from_thread import start_blocking_portal

from bird_env import AsyncClient, Client, Limits, RetryPolicy
from bird_env.client import TrajectoryOptions
from bird_env.errors import (
    Overloaded,
    RequestError,
    ServerUnreachable,
    ServiceError,
    StepConflict,
    TrajectoryExists,
    TrajectoryGone,
    Unauthorized,
)
from bird_env.models import CreateTrajectory
from bird_env.testing import FakeClock, in_process
from bird_env.testing.in_process import _Blocking
from env.fake_server import FakeServer
from env.faults import Fault, Faulty, answers, reply_lost, unreachable

OVERLOADED = json.dumps(
    {"title": "t", "status": 503, "detail": "full", "code": "overloaded", "retryable": True, "retry_after_s": 4.5}
)
HTML = "<html><h1>502 Bad Gateway</h1></html>"

PASSING: dict[str, Fault] = {
    "no connection": unreachable(httpx.ConnectError),
    "a closed keep-alive socket": unreachable(httpx.RemoteProtocolError),
    "a read timeout": reply_lost(httpx.ReadTimeout),
    "a reply cut off": reply_lost(httpx.RemoteProtocolError),
    "a connection reset": reply_lost(httpx.ReadError),
    "overloaded": answers(503, OVERLOADED),
    "too many requests": answers(429, "slow down", Retry_After="3"),
    "a proxy's 502": answers(502, HTML),
    "a proxy's 504": answers(504),
}


class Setting:
    """A client behind faults, in front of a fake server, on a fake clock."""

    def __init__(self, client: Client, server: FakeServer, faulty: Faulty, clock: FakeClock) -> None:
        self.client = client
        self.server = server
        self.faulty = faulty
        self.clock = clock


Connect = Callable[..., Setting]


@pytest.fixture(params=["sync", "async"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    with ExitStack() as stack:
        server = FakeServer()
        inner = stack.enter_context(in_process(server))

        def make(*faults: Fault, base_url: str = "http://fake", **options: Any) -> Setting:
            clock = FakeClock()
            faulty = Faulty(inner, faults)
            policy = RetryPolicy(random=lambda: 0.5)
            client: Any
            if request.param == "sync":
                client = Client(base_url, transport=faulty, retry=policy, clock=clock, sleep=clock.sleep, **options)
            else:
                portal = stack.enter_context(start_blocking_portal("asyncio"))
                client = _Blocking(
                    portal,
                    AsyncClient(
                        base_url, transport=faulty, retry=policy, clock=clock, sleep=clock.sleep_async, **options
                    ),
                )
            return Setting(cast("Client", stack.enter_context(client)), server, faulty, clock)

        yield make


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_a_step_runs_once_through_every_fault(connect: Connect, fault: Fault) -> None:
    made = connect()
    with made.client.trajectory(database="shop") as trajectory:
        trajectory.execute("CREATE TABLE tally(x)")
        made.faulty.faults = [fault, fault]
        trajectory.execute("INSERT INTO tally VALUES (1)")
        assert len(made.clock.slept_s) == 2
        assert trajectory.execute("SELECT count(*) FROM tally").observation.values() == [(1,)]
    steps = [json.loads(each.content) for each in made.faulty.requests if each.url.path.endswith("/steps")]
    assert [each["step_index"] for each in steps] == [0, 1, 1, 1, 2]
    assert made.server.executed.count("INSERT INTO tally VALUES (1)") == 1


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_a_create_a_reset_and_a_score_keep_their_keys(connect: Connect, fault: Fault) -> None:
    made = connect(fault)
    with made.client.trajectory("shop_1") as trajectory:
        trajectory.open()
        assert len(made.server.trajectories) == 1
        trajectory.execute("SELECT 1")
        made.faulty.faults = [fault]
        _, info = trajectory.reset()
        assert info["epoch"] == 1
        made.faulty.faults = [fault]
        made.client.score("shop_1", "SELECT 1")
        made.faulty.faults = [fault]
    assert made.server.trajectories[trajectory.trajectory_id].ended
    by_call: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
    for each in made.faulty.requests:
        sent = (each.content, each.headers.get("Idempotency-Key"), each.headers["X-Request-ID"])
        by_call.setdefault((each.method, each.url.path), []).append(sent)
    repeated = [sent for sent in by_call.values() if len(sent) > 1]
    assert len(repeated) == 4
    assert all(len(set(sent)) == 1 for sent in repeated)


def test_waits_follow_the_server(connect: Connect) -> None:
    made = connect(answers(503, OVERLOADED), answers(429, Retry_After="3"), answers(502, HTML))
    made.client.version()
    policy = RetryPolicy()
    first = policy.first_wait_s
    assert made.clock.slept_s == [4.5 + first / 2, 3.0 + first, first * 2]


def test_a_server_that_stays_away(connect: Connect) -> None:
    made = connect(*[unreachable(httpx.ConnectError)] * 1000)
    with pytest.raises(ServerUnreachable) as caught:
        made.client.version()
    assert isinstance(caught.value.__cause__, httpx.ConnectError)
    assert caught.value.retryable
    assert 250.0 < made.clock.now_s < 300.0


def test_an_error_that_stays(connect: Connect) -> None:
    made = connect(*[answers(503, OVERLOADED)] * 1000, retry_for_s=20.0)
    with pytest.raises(Overloaded, match="full"):
        made.client.version()
    assert 10.0 < made.clock.now_s < 20.0


def test_a_proxys_page_is_a_service_error(connect: Connect) -> None:
    made = connect(*[answers(502, HTML + "x" * 10_000)] * 9, retry_for_s=0.0)
    with pytest.raises(ServiceError) as caught:
        made.client.version()
    assert type(caught.value) is ServiceError
    assert caught.value.fields["status"] == 502
    assert caught.value.fields["body_excerpt"].startswith("<html>")
    assert len(made.faulty.requests) == 1


@pytest.mark.parametrize("status", [400, 401, 404, 409, 410, 422])
def test_refusals_are_not_repeated(connect: Connect, status: int) -> None:
    made = connect(answers(status, HTML))
    with pytest.raises(RequestError):
        made.client.version()
    assert len(made.faulty.requests) == 1


def test_health_is_asked_once(connect: Connect) -> None:
    made = connect(unreachable(httpx.ConnectError), answers(503, '{"status": "draining"}'))
    with pytest.raises(ServerUnreachable):
        made.client.health()
    assert made.client.ready().status == "draining"
    assert made.client.health().status == "ok"
    assert made.clock.slept_s == []


def test_waiting_until_ready(connect: Connect) -> None:
    starting = answers(503, '{"status": "starting"}', Retry_After="1")
    made = connect(unreachable(httpx.ConnectError), starting, starting, retry_for_s=0.0)
    assert made.client.wait_until_ready(30.0).status == "ok"
    assert len(made.faulty.requests) == 4
    made.faulty.faults = [starting] * 100
    with pytest.raises(ServiceError):
        made.client.wait_until_ready(10.0)


def test_the_token_and_the_prefix_are_sent(connect: Connect) -> None:
    made = connect(base_url="http://fake/prefix/", token="t0")
    made.client.version()
    request = made.faulty.requests[0]
    assert request.headers["Authorization"] == "Bearer t0"
    assert request.url.raw_path == b"/prefix/version"
    assert request.headers["User-Agent"].startswith("bird-env/")


def test_a_missing_token_is_typed(connect: Connect) -> None:
    made = connect(answers(401, '{"detail": "no"}'))
    with pytest.raises(Unauthorized) as caught:
        made.client.version()
    assert caught.value.hint is not None


def test_pages_come_as_they_are_asked_for(connect: Connect) -> None:
    made = connect()
    tasks = iter(made.client.tasks(limit=1))
    assert made.faulty.requests == []
    assert next(tasks).task_id == "ship_1"
    assert len(made.faulty.requests) == 1
    assert [each.task_id for each in tasks] == ["shop_1", "shop_2"]
    assert len(made.faulty.requests) == 3


def test_a_page_token_that_does_not_move_on_ends_the_list(connect: Connect) -> None:
    page = json.dumps({"items": [], "next_page_token": "same"})
    made = connect(*[answers(200, page)] * 5)
    with pytest.raises(ServiceError, match="same page token"):
        list(made.client.tasks())


def test_a_create_that_was_refused_deletes_nothing(connect: Connect) -> None:
    made = connect()
    made.client.create_trajectory(database="shop", trajectory_id="mine", seed=1)
    with pytest.raises(TrajectoryExists), made.client.trajectory("no such task", trajectory_id="mine"):
        pass
    assert not made.server.trajectories["mine"].ended


def test_a_create_whose_reply_never_came_is_ended(connect: Connect) -> None:
    made = connect(*[reply_lost(httpx.ReadTimeout)] * 2, retry_for_s=0.0)
    with pytest.raises(ServerUnreachable) as caught, made.client.trajectory(database="shop", trajectory_id="mine"):
        pass
    assert made.server.trajectories["mine"].ended
    assert "could not be ended" in "".join(caught.value.__notes__)


def test_an_attachment_that_fails_ends_nothing(connect: Connect) -> None:
    made = connect()
    made.client.create_trajectory(database="shop", trajectory_id="mine")
    made.faulty.faults = [unreachable(httpx.ConnectError)] * 1000
    with pytest.raises(ServerUnreachable), made.client.attach("mine"):
        pass
    assert not made.server.trajectories["mine"].ended


def test_an_end_that_fails_hides_no_other_error(connect: Connect) -> None:
    made = connect(retry_for_s=0.0)

    def fail() -> None:
        with made.client.trajectory(database="shop"):
            made.faulty.faults = [unreachable(httpx.ConnectError)] * 1000
            raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        fail()
    assert any("its lease will end it" in note for note in caught.value.__notes__)


def test_an_end_that_fails_alone_is_raised_soon(connect: Connect) -> None:
    made = connect()
    with pytest.raises(ServerUnreachable), made.client.trajectory(database="shop"):
        made.faulty.faults = [unreachable(httpx.ConnectError)] * 1000
    assert made.clock.now_s < 10.0


def test_a_failed_step_may_be_repeated_or_left(connect: Connect) -> None:
    made = connect(retry_for_s=0.0)
    with made.client.trajectory(database="shop") as trajectory:
        trajectory.execute("CREATE TABLE tally(x)")
        made.faulty.faults = [reply_lost(httpx.ReadTimeout)]
        with pytest.raises(ServerUnreachable):
            trajectory.execute("INSERT INTO tally VALUES (1)")
        trajectory.execute("INSERT INTO tally VALUES (1)")
        made.faulty.faults = [reply_lost(httpx.ReadTimeout)]
        with pytest.raises(ServerUnreachable):
            trajectory.execute("INSERT INTO tally VALUES (2)")
        trajectory.refresh()
        assert trajectory.execute("SELECT count(*) FROM tally").observation.values() == [(2,)]


def test_a_step_beside_the_handle_is_a_conflict_and_not_a_silence(connect: Connect) -> None:
    made = connect()
    with made.client.trajectory(database="shop") as trajectory, made.client.attach(trajectory.trajectory_id) as other:
        other.execute("SELECT 1")
        other.execute("SELECT 2")
        made.server.trajectories[trajectory.trajectory_id].steps.clear()
        with pytest.raises(StepConflict):
            trajectory.execute("SELECT 3")


def test_a_trajectory_that_is_gone(connect: Connect) -> None:
    made = connect()
    with made.client.trajectory(database="shop") as trajectory:
        made.server.trajectories[trajectory.trajectory_id].ended = True
        with pytest.raises(TrajectoryGone) as caught:
            trajectory.execute("SELECT 1")
        assert caught.value.fields == {"end_reason": "deleted"}


def test_options_are_the_fields_of_a_create() -> None:
    given_otherwise = {"trajectory_id", "task_id"}
    assert set(TrajectoryOptions.__annotations__) == set(CreateTrajectory.model_fields) - given_otherwise


def test_limits_may_be_a_mapping(connect: Connect) -> None:
    made = connect()
    for limits in (Limits(max_steps=1), {"max_steps": 1}):
        with made.client.trajectory(database="shop", limits=limits) as trajectory:
            assert trajectory.execute("SELECT 1").truncated
