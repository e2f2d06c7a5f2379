"""Calls as they are written, and replies as they are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, unquote

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bird_env import _protocol
from bird_env.errors import (
    BirdEnvError,
    BodyTooLarge,
    EpisodeOver,
    Forbidden,
    InternalError,
    InvalidRequest,
    NotFound,
    Overloaded,
    RequestError,
    ServiceError,
    StepConflict,
    Unauthorized,
)
from bird_env.models import CreateTrajectory, ExecuteSql, Limits, StepRequest, TaskInfo

UNICODE = st.text(st.characters(exclude_categories=["Cs"]))
PROBLEM = {"title": "t", "status": 409, "detail": "d", "code": "episode_over", "retryable": False}


def sent(call: _protocol.Call[Any], base_url: str = "http://host/prefix") -> httpx.Request:
    """The request as a client puts it on the wire."""
    requests: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(204)

    with httpx.Client(base_url=base_url, transport=httpx.MockTransport(handler)) as client:
        client.request(call.method, call.path, content=call.body, headers=call.all_headers())
    return requests[0]


CALLS: list[tuple[str, Callable[[], _protocol.Call[Any]]]] = [
    ("POST /v1/trajectories", lambda: _protocol.create_trajectory(CreateTrajectory(task_id="a"))),
    ("GET /v1/trajectories", lambda: _protocol.list_trajectories()(None)),
    ("GET /v1/trajectories/t", lambda: _protocol.get_trajectory("t")),
    ("POST /v1/trajectories/t/steps", lambda: _protocol.step("t", execute("SELECT 1"))),
    ("GET /v1/trajectories/t/steps", lambda: _protocol.list_steps("t")(None)),
    ("POST /v1/trajectories/t/reset", lambda: _protocol.reset_trajectory("t", epoch=0)),
    ("POST /v1/trajectories/t/score", lambda: _protocol.score_trajectory("t")),
    ("POST /v1/trajectories/t/heartbeat", lambda: _protocol.heartbeat("t")),
    ("DELETE /v1/trajectories/t", lambda: _protocol.delete_trajectory("t")),
    ("DELETE /v1/trajectories?run_id=r", lambda: _protocol.end_run("r")),
    ("POST /v1/scores", lambda: _protocol.create_score("a", "SELECT 1")),
    ("GET /v1/databases", lambda: _protocol.list_databases()(None)),
    ("GET /v1/databases/d/schema", lambda: _protocol.get_schema("d")),
    ("GET /v1/databases/d/schema?count=true", lambda: _protocol.get_schema("d", count=True)),
    ("GET /v1/tasks", lambda: _protocol.list_tasks()(None)),
    ("GET /v1/tasks/a", lambda: _protocol.get_task("a")),
    ("GET /v1/tools", lambda: _protocol.list_tools()(None)),
    ("GET /v1/pool", _protocol.get_pool),
    ("GET /healthz", _protocol.get_health),
    ("GET /readyz", _protocol.get_readiness),
    ("GET /readyz", lambda: _protocol.await_readiness(1.0)),
    ("GET /version", _protocol.get_version),
]


def execute(sql: str) -> StepRequest:
    return StepRequest(epoch=0, step_index=0, action=ExecuteSql(sql=sql))


@pytest.mark.parametrize(("line", "make"), CALLS, ids=[line for line, _ in CALLS])
def test_each_endpoint_has_its_address(line: str, make: Callable[[], _protocol.Call[Any]]) -> None:
    request = sent(make())
    assert f"{request.method} {request.url.raw_path.decode().removeprefix('/prefix')}" == line


@given(UNICODE.filter(bool))
def test_an_id_is_one_segment_whatever_it_holds(name: str) -> None:
    path = sent(_protocol.get_task(name)).url.raw_path.decode()
    assert path.startswith("/prefix/v1/tasks/")
    segment = path.removeprefix("/prefix/v1/tasks/")
    assert unquote(segment, errors="strict") == name
    assert not set(segment) & set("/?#")
    assert segment not in (".", "..")


@given(UNICODE, UNICODE, UNICODE)
def test_filters_and_page_tokens_arrive_as_they_are(database: str, category: str, token: str) -> None:
    url = sent(_protocol.list_tasks(database=database, category=category, limit=5)(token)).url
    assert url.path == "/prefix/v1/tasks"
    found = parse_qs(url.query.decode("ascii"), keep_blank_values=True, strict_parsing=True, errors="strict")
    assert found == {"database": [database], "category": [category], "limit": ["5"], "page_token": [token]}


@pytest.mark.parametrize("name", ["", "\ud800"])
def test_an_id_that_no_address_can_hold(name: str) -> None:
    with pytest.raises(InvalidRequest):
        _protocol.delete_trajectory(name)
    with pytest.raises(InvalidRequest):
        _protocol.end_run("\ud800")


@given(st.text(st.characters(min_codepoint=0)))
def test_sql_arrives_as_the_policy_wrote_it(sql: str) -> None:
    request = sent(_protocol.step("t", execute(sql)))
    assert request.content.isascii()
    assert json.loads(request.content)["action"] == {"type": "execute_sql", "sql": sql}
    assert request.headers["Content-Type"] == "application/json"


def test_a_body_leaves_out_what_was_not_given_but_keeps_what_a_client_noted() -> None:
    request = CreateTrajectory(trajectory_id="t", task_id="a", limits=Limits(rows=5), metadata={"a": None, "b": [None]})
    body = json.loads(_protocol.create_trajectory(request).body or b"")
    assert body == {
        "trajectory_id": "t",
        "task_id": "a",
        "limits": {"rows": 5},
        "metadata": {"a": None, "b": [None]},
    }


def test_metadata_that_json_cannot_hold_is_refused_here() -> None:
    with pytest.raises(InvalidRequest, match="metadata"):
        _protocol.trajectory_request(None, {"task_id": "a", "metadata": {"x": float("nan")}})
    with pytest.raises(InvalidRequest, match="JSON"):
        _protocol.create_trajectory(CreateTrajectory.model_construct(trajectory_id="t", metadata={"x": object()}))


def test_fields_that_do_not_fit_are_named_as_the_server_names_them() -> None:
    with pytest.raises(InvalidRequest, match=r"limits\.rows: ") as caught:
        _protocol.trajectory_request("bad id", {"task_id": "a", "limits": {"rows": -1}, "typo": 1})
    assert {each["field"] for each in caught.value.fields["errors"]} == {"trajectory_id", "limits.rows", "typo"}


def test_a_create_always_has_an_id() -> None:
    bodies = [json.loads(_protocol.create_trajectory(CreateTrajectory(task_id="a")).body or b"") for _ in range(2)]
    assert bodies[0]["trajectory_id"] != bodies[1]["trajectory_id"]
    assert _protocol.create_trajectory(CreateTrajectory(task_id="a"), wait_s=30).headers["Prefer"] == "wait=30"


def test_posts_whose_bodies_hold_no_key_carry_one() -> None:
    keyed = [_protocol.create_score("a", "x"), _protocol.create_score("a", "x"), _protocol.score_trajectory("t")]
    keys = {call.headers["Idempotency-Key"] for call in keyed}
    assert len(keys) == 3
    assert _protocol.heartbeat("t").headers == {}


def test_a_reply_may_be_newer_than_the_client() -> None:
    document = {"task_id": "a", "database": "d", "issue": "\ud83d", "scorable": True, "digest": "0", "since_v9": [1]}
    call = _protocol.get_task("a")
    task = call.parse(httpx.Response(200, content=json.dumps(document)))
    assert isinstance(task, TaskInfo)
    assert task.issue == "\ud83d"


@pytest.mark.parametrize("content", [b"", b"<html>", b"[]", b'{"task_id": 1}', b"\xff", b"[" * 100_000])
def test_a_reply_that_cannot_be_read_is_the_services(content: bytes) -> None:
    with pytest.raises(ServiceError, match="cannot be read") as caught:
        _protocol.get_task("a").parse(httpx.Response(200, content=content))
    assert caught.value.fields["status"] == 200
    assert len(caught.value.fields["body_excerpt"]) <= _protocol.EXCERPT_BYTES


def test_a_problem_becomes_its_error() -> None:
    response = httpx.Response(
        409, json={**PROBLEM, "code": "step_conflict", "expected_step_index": 4, "problem": 1, "self": 2}
    )
    error = _protocol.error_of(response, "r")
    assert type(error) is StepConflict
    assert error.detail == "d"
    assert error.fields == {"expected_step_index": 4, "problem": 1, "self": 2}
    assert error.problem is not None
    assert error.problem.status == 409


def test_a_problem_is_known_by_its_body_alone() -> None:
    response = httpx.Response(409, content=json.dumps(PROBLEM), headers={"Content-Type": "text/plain"})
    assert type(_protocol.error_of(response, "r")) is EpisodeOver


@pytest.mark.parametrize(("status", "kind"), [(418, RequestError), (599, InternalError)])
def test_a_code_of_a_newer_server_is_an_error_like_any_other(status: int, kind: type[BirdEnvError]) -> None:
    response = httpx.Response(status, json={**PROBLEM, "status": status, "code": "since_v9"})
    assert type(_protocol.error_of(response, "r")) is kind


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (301, RequestError),
        (400, RequestError),
        (401, Unauthorized),
        (403, Forbidden),
        (404, NotFound),
        (413, BodyTooLarge),
        (429, ServiceError),
        (500, ServiceError),
        (502, ServiceError),
        (504, ServiceError),
    ],
)
@pytest.mark.parametrize(
    "content", [b"", b"<html><h1>nginx</h1>" + b"x" * 5000, b'{"detail": "Not Found"}', b"\xff\x00"]
)
def test_a_stranger_is_told_apart_by_its_status(status: int, kind: type[BirdEnvError], content: bytes) -> None:
    error = _protocol.error_of(httpx.Response(status, content=content), "r1")
    assert type(error) is kind
    assert str(status) in error.detail
    assert error.fields["status"] == status
    assert error.fields["request_id"] == "r1"
    assert len(error.fields["body_excerpt"]) <= _protocol.EXCERPT_BYTES


def test_a_redirect_names_where_the_service_went() -> None:
    error = _protocol.error_of(httpx.Response(308, headers={"Location": "https://host/v1/tasks"}), "r")
    assert "https://host/v1/tasks" in error.detail


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:30 GMT", "Date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 30.0),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT", "Date": "Wed, 21 Oct 2026 07:28:30 GMT"}, 0.0),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-1"}, None),
        ({}, None),
    ],
)
def test_retry_after_in_both_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert _protocol.error_of(httpx.Response(503, headers=headers), "r").retry_after_s == seconds


def test_a_problems_own_wait_goes_first() -> None:
    problem = {**PROBLEM, "status": 503, "code": "overloaded", "retryable": True, "retry_after_s": 0.25}
    error = _protocol.error_of(httpx.Response(503, json=problem, headers={"Retry-After": "1"}), "r")
    assert type(error) is Overloaded
    assert error.retry_after_s == 0.25


@settings(max_examples=50)
@given(st.integers(300, 599), st.binary(max_size=600))
def test_any_answer_is_an_error_and_never_a_crash(status: int, content: bytes) -> None:
    with pytest.raises(BirdEnvError):
        _protocol.get_version().parse(httpx.Response(status, content=content))


def test_readiness_reads_a_503_as_the_health_it_is() -> None:
    starting = httpx.Response(503, json={"status": "starting"})
    assert _protocol.get_readiness().parse(starting).status == "starting"
    with pytest.raises(ServiceError):
        _protocol.get_readiness().parse(httpx.Response(503, content=b"<html>"))
    with pytest.raises(ServiceError):
        _protocol.await_readiness(1.0).parse(starting)
