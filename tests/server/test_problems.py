"""One table from errors to HTTP, one shape for every failure."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.responses import Response

from bird_env.errors import BY_CODE, BirdEnvError, ErrorCode, Problem, StepConflict
from bird_env.models import StepRequest
from bird_server import problems
from bird_server.middleware import RequestContext


def make_app() -> FastAPI:
    app = FastAPI()
    problems.install(app)
    app.add_middleware(RequestContext, max_body_bytes=10_000)

    @app.get("/raise/{code}")
    async def fail(code: str) -> Response:
        raise BY_CODE[code]("what happened")

    @app.get("/conflict/{trajectory_id}")
    async def conflict(trajectory_id: str) -> Response:
        raise StepConflict("later", expected_step_index=4)

    @app.get("/defect")
    async def defect() -> Response:
        raise KeyError("a secret of the service")

    @app.post("/steps")
    async def steps(body: StepRequest) -> Response:
        return Response(repr(body.action))

    return app


async def ask(method: str, path: str, **options: Any) -> httpx.Response:
    transport = httpx.ASGITransport(make_app(), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.request(method, path, **options)


def check_problem(response: httpx.Response) -> Problem:
    assert response.headers["content-type"] == "application/problem+json"
    problem = Problem.model_validate(response.json())
    assert problem.status == response.status_code
    assert problem.code in set(ErrorCode)
    assert problem.request_id == response.headers["x-request-id"]
    assert problem.retryable == BY_CODE[problem.code].retryable
    return problem


def test_every_code_has_a_status() -> None:
    assert set(problems.STATUS) == set(ErrorCode)


@pytest.mark.parametrize("code", list(ErrorCode))
async def test_every_error_becomes_its_problem_and_comes_back_as_itself(code: ErrorCode) -> None:
    response = await ask("GET", f"/raise/{code}")
    problem = check_problem(response)
    assert (problem.code, problem.detail) == (code, "what happened")
    back = BirdEnvError.from_problem(problem)
    assert type(back) is BY_CODE[code]
    assert ("retry-after" in response.headers) == (response.status_code == 503)
    if response.status_code == 503:
        assert problem.retry_after_s
    assert ("www-authenticate" in response.headers) == (response.status_code == 401)


async def test_members_of_an_error_are_members_of_its_problem() -> None:
    problem = check_problem(await ask("GET", "/conflict/run7"))
    assert problem.trajectory_id == "run7"
    assert (problem.model_extra or {})["expected_step_index"] == 4


async def test_a_defect_says_nothing_of_itself() -> None:
    response = await ask("GET", "/defect")
    assert check_problem(response).code == ErrorCode.INTERNAL_ERROR
    assert "secret" not in response.text


@pytest.mark.parametrize(
    ("method", "path", "code"), [("GET", "/none", "not_found"), ("PUT", "/steps", "method_not_allowed")]
)
async def test_what_the_router_refuses_is_a_problem_too(method: str, path: str, code: str) -> None:
    assert check_problem(await ask(method, path)).code == code


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_request"),
        (b"{", "malformed_request"),
        (b"\xff\xfe", "malformed_request"),
        (b"[1]", "invalid_request"),
        (b"null", "invalid_request"),
        (b'{"epoch": 0}', "invalid_request"),
        (b'{"epoch": -1, "step_index": 0, "action": {"type": "execute_sql", "sql": ""}}', "invalid_request"),
        (
            b'{"epoch": 0, "step_index": 99999999999999999999, "action": {"type": "submit", "sql": []}}',
            "invalid_request",
        ),
        (b'{"epoch": 0, "step_index": 0, "action": {"type": "drop"}}', "invalid_request"),
        (b'{"epoch": 0, "step_index": 0, "action": {"type": "execute_sql", "sql": 7}}', "invalid_request"),
        (b'{"epoch": 0, "step_index": 0, "action": {"type": "submit", "sql": [7]}}', "invalid_request"),
        (
            b'{"epoch": 0, "step_index": 0, "action": {"type": "submit", "sql": "x"}, "wat\\ud83d": 1}',
            "invalid_request",
        ),
    ],
)
async def test_a_bad_body_is_a_problem_that_names_the_field(body: bytes, code: str) -> None:
    response = await ask("POST", "/steps", content=body, headers={"content-type": "application/json"})
    problem = check_problem(response)
    assert problem.code == code
    if code == "invalid_request":
        assert (problem.model_extra or {})["errors"]


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded"])
async def test_json_that_is_not_sent_as_json_is_told_what_it_lacks(content_type: str | None) -> None:
    body = b'{"epoch": 0, "step_index": 0, "action": {"type": "submit", "sql": []}}'
    headers = {} if content_type is None else {"content-type": content_type}
    problem = check_problem(await ask("POST", "/steps", content=body, headers=headers))
    assert problem.code == "malformed_request"
    assert "Content-Type: application/json" in (problem.hint or "")


async def test_a_lone_surrogate_in_sql_passes() -> None:
    body = b'{"epoch": 0, "step_index": 0, "action": {"type": "execute_sql", "sql": "SELECT \'\\ud83d\'"}}'
    response = await ask("POST", "/steps", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 200
    assert "\\ud83d" in response.text


async def test_a_body_beyond_the_limit_is_refused_declared_or_not() -> None:
    big = json.dumps({"x": "y" * 20_000}).encode()
    headers = {"content-type": "application/json"}
    assert check_problem(await ask("POST", "/steps", content=big, headers=headers)).code == "body_too_large"

    async def chunks() -> Any:
        for start in range(0, len(big), 1_000):
            yield big[start : start + 1_000]
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)

    assert check_problem(await ask("POST", "/steps", content=chunks(), headers=headers)).code == "body_too_large"


async def test_a_body_of_undeclared_length_within_the_limit_arrives_whole() -> None:
    body = b'{"epoch": 0, "step_index": 0, "action": {"type": "submit", "sql": ["a", "b"]}}'

    async def chunks() -> Any:
        yield body[:20]
        yield body[20:]

    response = await ask("POST", "/steps", content=chunks(), headers={"content-type": "application/json"})
    assert "['a', 'b']" in response.text


@pytest.mark.parametrize(("given", "kept"), [("abc-1.2:3", True), ("bad\tid", False), ("x" * 200, False), ("", False)])
async def test_a_plain_request_id_is_echoed(given: str, kept: bool) -> None:
    response = await ask("GET", "/none", headers={"x-request-id": given.encode()})
    assert (response.headers["x-request-id"] == given) == kept
    assert response.headers["x-request-id"]
