"""What HTTP itself asks of the service, whatever the route: methods, HEAD, addresses, content types."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from bird_server.app import create_app
from bird_server.settings import Settings
from bird_world import SELECT_1, World, problem

DOCUMENT: dict[str, Any] = create_app(Settings()).openapi()
STEP = {"epoch": 0, "step_index": 0, "action": SELECT_1}


def address(template: str) -> str:
    values = {"trajectory_id": "t1", "name": "shop", "task_id": "read_1"}
    return re.sub(r"\{(\w+)\}", lambda match: values[match[1]], template)


@pytest.mark.parametrize("path", DOCUMENT["paths"])
async def test_a_method_that_an_address_does_not_take_names_those_that_it_takes(world: World, path: str) -> None:
    taken = {method.upper() for method in DOCUMENT["paths"][path]}
    for method in {"PUT", "PATCH", "TRACE", "OPTIONS", "GET", "POST", "DELETE", "BREW"} - taken:
        response = await world.http.request(method, address(path))
        told = problem(response, 405, "method_not_allowed")
        assert told["status"] == 405
        allowed = response.headers["allow"].split(", ")
        assert set(allowed) == taken | ({"HEAD"} if "GET" in taken else set())
        assert len(allowed) == len(set(allowed))


@pytest.mark.parametrize("path", [path for path, methods in DOCUMENT["paths"].items() if "get" in methods])
async def test_head_is_get_without_the_body(world: World, path: str) -> None:
    await world.create("t1", task_id="read_1")
    query = "?limit=1" if path in ("/v1/tasks", "/v1/trajectories") else ""
    got = await world.http.get(address(path) + query)
    head = await world.http.head(address(path) + query)
    assert (got.status_code, head.status_code) == (200, 200)
    assert head.content == b""
    assert head.headers["content-type"] == got.headers["content-type"]
    assert head.headers["content-length"]
    assert head.headers["x-request-id"]


async def test_head_of_what_is_not_there_is_the_problem_without_its_body(world: World) -> None:
    head = await world.http.head("/v1/trajectories/none")
    assert (head.status_code, head.content) == (404, b"")
    assert head.headers["content-type"] == "application/problem+json"
    head = await world.http.head("/v1/scores")
    assert (head.status_code, head.headers["allow"]) == (405, "POST")


async def test_head_of_the_document_and_its_page(world: World) -> None:
    for path in ("/openapi.json", "/docs"):
        assert (await world.http.head(path)).status_code == 200


@pytest.mark.parametrize("path", DOCUMENT["paths"])
async def test_a_slash_at_the_end_is_another_address_and_never_a_redirect(world: World, path: str) -> None:
    for method in DOCUMENT["paths"][path]:
        response = await world.http.request(method, address(path) + "/", headers={"host": "evil.example"})
        assert response.status_code in (404, 405)
        assert "location" not in response.headers
        assert "evil.example" not in response.text
        assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("content_type", "words"),
    [
        (None, "without a Content-Type"),
        ("text/plain", "text/plain"),
        ("application/x-www-form-urlencoded", "x-www-form-urlencoded"),
        ("text/json; charset=utf-8", "text/json"),
    ],
)
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/trajectories", {"database": "shop"}),
        ("/v1/trajectories/t1/steps", STEP),
        ("/v1/trajectories/t1/reset", {}),
        ("/v1/trajectories/t1/score", {"sql": []}),
        ("/v1/scores", {"task_id": "read_1", "sql": []}),
    ],
)
async def test_a_body_that_is_not_said_to_be_json(
    world: World, path: str, body: Any, content_type: str | None, words: str
) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    told = problem(await world.http.post(path, content=json.dumps(body), headers=headers), 400, "malformed_request")
    assert "`Content-Type: application/json` is missing" in told["detail"]
    assert words in told["detail"]


async def test_json_by_another_name_is_json(world: World) -> None:
    for content_type in ("application/json; charset=utf-8", "APPLICATION/JSON", "application/problem+json"):
        response = await world.http.post(
            "/v1/trajectories", content=b'{"database": "shop"}', headers={"content-type": content_type}
        )
        assert response.status_code == 201, content_type


async def test_a_statement_beyond_the_limit_of_a_body_is_told_the_setting(world: World) -> None:
    await world.create("t1")
    response = await world.send("t1", 0, 0, {"type": "execute_sql", "sql": "SELECT 1 -- " + "x" * 4_000_000})
    told = problem(response, 413, "body_too_large")
    assert told["max_body_bytes"] == 4_000_000
    assert "max_body_bytes" in told["hint"]
    assert (await world.sql("SELECT 1"))["outcome"] == "ok"


@pytest.mark.parametrize("shape", ["ExecuteSql", "Submit"])
def test_the_type_of_an_action_is_required_in_the_document_as_it_is_on_the_wire(shape: str) -> None:
    schema = DOCUMENT["components"]["schemas"][shape]
    assert set(schema["required"]) == {"type", "sql"}
    assert "default" not in schema["properties"]["type"]


async def test_an_action_without_its_type_is_refused(world: World) -> None:
    await world.create("t1")
    problem(await world.send("t1", 0, 0, {"sql": "SELECT 1"}), 422, "invalid_request")


def test_what_a_body_can_be_refused_for_is_documented() -> None:
    for path, methods in DOCUMENT["paths"].items():
        for operation in methods.values():
            if "requestBody" in operation:
                assert {"400", "413", "422"} <= set(operation["responses"]), path
    assert "404" in DOCUMENT["paths"]["/v1/trajectories"]["post"]["responses"]


@pytest.mark.parametrize(("length", "status"), [(0, 422), (1, 201), (200, 201), (201, 422)])
async def test_an_idempotency_key_is_as_long_as_the_document_says(world: World, length: int, status: int) -> None:
    (header,) = (
        each
        for each in DOCUMENT["paths"]["/v1/trajectories"]["post"]["parameters"]
        if each["name"] == "Idempotency-Key"
    )
    fits = header["schema"]["minLength"] <= length <= header["schema"]["maxLength"]
    response = await world.post("/v1/trajectories", {"database": "shop"}, Idempotency_Key="k" * length)
    assert (response.status_code, response.status_code == 201) == (status, fits)
