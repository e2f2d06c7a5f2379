"""The OpenAPI document against the issue of what routes there are, and against what a real session is answered."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from pydantic import BaseModel

from bird_env import models
from bird_env.errors import ErrorCode, LedgerFault
from bird_server.app import create_app
from bird_server.openapi import problems
from bird_server.settings import Settings
from bird_world import GOLD, SELECT_1, World, serving

ROUTES = {
    "POST /v1/trajectories",
    "GET /v1/trajectories",
    "DELETE /v1/trajectories",
    "GET /v1/trajectories/{trajectory_id}",
    "DELETE /v1/trajectories/{trajectory_id}",
    "POST /v1/trajectories/{trajectory_id}/steps",
    "GET /v1/trajectories/{trajectory_id}/steps",
    "POST /v1/trajectories/{trajectory_id}/reset",
    "POST /v1/trajectories/{trajectory_id}/score",
    "POST /v1/trajectories/{trajectory_id}/heartbeat",
    "POST /v1/scores",
    "GET /v1/databases",
    "GET /v1/databases/{name}/schema",
    "GET /v1/tasks",
    "GET /v1/tasks/{task_id}",
    "GET /v1/tools",
    "GET /v1/pool",
    "GET /healthz",
    "GET /readyz",
    "GET /version",
}
#: Those that anybody may call, token or none.
OPEN = {"GET /healthz", "GET /readyz", "GET /version"}
#: What only the scope `admin` may call.
ADMIN = {"POST /v1/scores"}
#: What a policy must never be told, in whatever words a record has for it.
SECRET = re.compile(
    r"gold|sol_sql|test_case|clean_up|conditions|^record$|^tests$|solution_sql|ground_truth", re.IGNORECASE
)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(Settings()).openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def reachable(document: dict[str, Any], start: Any) -> dict[str, Any]:
    """Every schema that something refers to, by name, however far."""
    found: dict[str, Any] = {}
    waiting = [start]
    while waiting:
        for name in re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(waiting.pop())):
            if name not in found:
                found[name] = document["components"]["schemas"][name]
                waiting.append(found[name])
    return found


# ---- the document by itself ----


def test_every_route_exists_and_no_other(document: dict[str, Any]) -> None:
    assert {name for name, _ in operations(document)} == ROUTES


def test_it_is_made_once_and_is_plain_json() -> None:
    app = create_app(Settings())
    assert app.openapi() is app.openapi()
    json.dumps(app.openapi(), allow_nan=False)
    assert app.openapi()["openapi"].startswith("3.1")


def test_every_schema_is_a_schema_and_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    assert set(reachable(document, document["paths"])) == set(document["components"]["schemas"])


def test_every_route_but_healthz_says_its_errors_as_problems(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        errors = {status: each for status, each in operation["responses"].items() if int(status) >= 400}
        if name == "GET /healthz":
            assert errors == {}
            continue
        assert "500" in errors, name
        for status, response in errors.items():
            if (name, status) == ("GET /readyz", "503"):  # the reason, in the words of the reply itself
                assert response["content"]["application/json"]["schema"]["$ref"].endswith("/Health")
            else:
                assert list(response["content"]) == ["application/problem+json"], (name, status)
                assert response["content"]["application/problem+json"]["schema"]["$ref"].endswith("/Problem")


def test_routes_with_a_body_say_what_a_body_can_be_refused_for(document: dict[str, Any]) -> None:
    with_body = {name for name, operation in operations(document) if "requestBody" in operation}
    assert with_body == {name for name in ROUTES if name.startswith("POST")} - {
        "POST /v1/trajectories/{trajectory_id}/heartbeat"
    }
    for name, operation in operations(document):
        if name in with_body:
            assert {"400", "413", "422"} <= set(operation["responses"]), name


def test_tokens_are_asked_for_where_they_are(document: dict[str, Any]) -> None:
    assert set(document["components"]["securitySchemes"]) == {"bearer", "api_key"}
    for name, operation in operations(document):
        assert ("401" in operation["responses"]) == (name not in OPEN), name
        assert ("security" in operation) == (name not in OPEN), name
    assert "403" in dict(operations(document))["POST /v1/scores"]["responses"]


def test_headers_that_routes_read_by_hand_are_named(document: dict[str, Any]) -> None:
    def read_by(header: str) -> set[str]:
        return {
            name
            for name, operation in operations(document)
            if any((each["name"], each["in"]) == (header, "header") for each in operation.get("parameters", []))
        }

    create, reset = "POST /v1/trajectories", "POST /v1/trajectories/{trajectory_id}/reset"
    assert read_by("Prefer") == {create, reset}
    assert read_by("Idempotency-Key") == {
        create,
        reset,
        "POST /v1/scores",
        "POST /v1/trajectories/{trajectory_id}/score",
    }


def test_every_request_has_examples_that_fit(document: dict[str, Any]) -> None:
    requests = {
        name: schema
        for _, operation in operations(document)
        if "requestBody" in operation
        for name, schema in document["components"]["schemas"].items()
        if f'"#/components/schemas/{name}"' in json.dumps(operation["requestBody"])
    }
    assert set(requests) == {"CreateTrajectory", "StepRequest", "ResetRequest", "ScoreRequest", "CreateScore"}
    for name, schema in requests.items():
        model: type[BaseModel] = getattr(models, name)
        assert schema["examples"], name
        for example in schema["examples"]:
            model.model_validate(example)
            validator(document, f"#/components/schemas/{name}").validate(example)


def test_nothing_of_gold_or_tests_is_in_any_shape_that_a_policys_side_can_be_given(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        if name in ADMIN:
            continue
        for schema_name, schema in reachable(document, operation).items():
            for field in schema.get("properties", {}):
                assert not SECRET.search(field), f"{schema_name}.{field} is reachable from {name}"


def test_the_look_for_secrets_finds_them() -> None:
    for field in ("sol_sql", "test_cases", "gold", "gold_sql", "clean_up_sql", "conditions"):
        assert SECRET.search(field)
    assert not SECRET.search("failed_tests")  # names such as test_1, which the official verdict has


def test_routes_say_what_they_may_answer() -> None:
    assert list(problems(404, 409)) == [401, 404, 409, 500]
    assert list(problems(guarded=False)) == [500]
    assert problems(409)[409]["description"] == "Conflict"
    with pytest.raises(ValueError, match="299"):
        problems(299)


# ---- a real session against the document ----


def validator(document: dict[str, Any], reference: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator({"$ref": reference, "components": document["components"]})


class Checked:
    """A server whose every reply is held against the document: its status, its media type, its shape."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.document = world.app.openapi()
        self.answered: set[tuple[str, int]] = set()

    async def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        content = json.dumps(body).encode() if body is not None else None
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            given["content-type"] = "application/json"
        response = await self.world.http.request(method, path, content=content, headers=given)
        self.check(method, path, response)
        return response

    def check(self, method: str, path: str, response: httpx.Response) -> None:
        name, operation = self.operation(method, path.partition("?")[0])
        documented = operation["responses"].get(str(response.status_code))
        assert documented is not None, f"{name} answered {response.status_code}: {response.text}"
        self.answered.add((name, response.status_code))
        if response.status_code == 204:
            assert response.content == b""
            assert "content" not in documented
            return
        ((media_type, content),) = documented["content"].items()
        assert response.headers["content-type"] == media_type
        validator(self.document, content["schema"]["$ref"]).validate(json.loads(response.text))
        shape = content["schema"]["$ref"].rpartition("/")[2]
        properties = self.document["components"]["schemas"][shape]["properties"]
        if shape != "Problem":  # whose further members are its own
            assert set(json.loads(response.text)) <= set(properties), name

    def operation(self, method: str, path: str) -> tuple[str, dict[str, Any]]:
        for name, operation in operations(self.document):
            wanted, _, template = name.partition(" ")
            if wanted == method and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path):
                return name, operation
        raise AssertionError(f"no route for {method} {path}")


@pytest.fixture
async def ask(tmp_path: Path) -> AsyncIterator[Checked]:
    async with serving(tmp_path / "data", capacity=2, queue_wait_s=0.0, run_token="run", admin_token="admin") as world:
        world.http.headers["Authorization"] = "Bearer admin"
        yield Checked(world)


async def test_every_reply_of_a_session_is_as_the_document_says(ask: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    task = {"trajectory_id": "a", "run_id": "r", "task_id": "read_1", "metadata": {"x": [1]}, "seed": 1}
    assert (await ask("POST", "/v1/trajectories", task)).status_code == 201
    assert (await ask("POST", "/v1/trajectories", task, Idempotency_Key="k")).status_code == 201
    statements = (
        "SELECT 1, 'é', x'00', 9e999, 9007199254740993, CAST(x'ff' AS TEXT), NULL",
        "SELECT nope",
        "INSERT INTO t(a) VALUES ('\ud83d')",
        "BEGIN; UPDATE t SET a = 1",
        "",
    )
    for index, sql in enumerate(statements):
        step = {"epoch": 0, "step_index": index, "action": {"type": "execute_sql", "sql": sql}, "policy_version": "p"}
        assert (await ask("POST", "/v1/trajectories/a/steps", step)).status_code == 200
    for path in (
        "/v1/trajectories",
        "/v1/trajectories?run_id=r&status=live&limit=1",
        "/v1/trajectories/a",
        "/v1/trajectories/a/steps?limit=3",
        "/v1/databases",
        "/v1/databases/shop/schema?count=true",
        "/v1/tasks?limit=2",
        "/v1/tasks/read_1",
        "/v1/tools",
        "/v1/pool",
        "/healthz",
        "/readyz",
        "/version",
    ):
        assert (await ask("GET", path)).status_code == 200
    assert (await ask("POST", "/v1/trajectories/a/heartbeat")).status_code == 200
    assert (await ask("POST", "/v1/trajectories/a/score", {"sql": GOLD})).status_code == 200
    assert (await ask("POST", "/v1/trajectories/a/score")).status_code == 409
    assert (await ask("POST", "/v1/trajectories/a/reset", {"epoch": 0})).status_code == 200
    submit = {"epoch": 1, "step_index": 0, "action": {"type": "submit", "sql": [GOLD]}}
    done = await ask("POST", "/v1/trajectories/a/steps", submit)
    assert done.json()["reward"] == 1.0
    assert (await ask("POST", "/v1/trajectories/a/score", {})).status_code == 200
    assert (await ask("POST", "/v1/scores", {"task_id": "write_1", "sql": ["SELECT 1"]})).json()["reward"] == 0.0
    assert (await ask("POST", "/v1/scores", {"task_id": "no_gold", "sql": []})).json()["status"] == "unscorable"
    bad = await ask("POST", "/v1/trajectories", {"trajectory_id": "bad", "task_id": "bad_preprocess"})
    assert bad.json()["observation"]["preprocess_error"]["statement_index"] == 1
    assert (await ask("DELETE", "/v1/trajectories/a")).status_code == 204
    assert (await ask("DELETE", "/v1/trajectories?run_id=r")).status_code == 200

    # what is refused
    step = {"epoch": 0, "step_index": 9, "action": SELECT_1}
    for method, path, body, status in (
        ("POST", "/v1/trajectories", {"database": "none"}, 404),
        ("POST", "/v1/trajectories", {"trajectory_id": "a", "task_id": "read_1"}, 409),
        ("POST", "/v1/trajectories", task, 410),
        ("POST", "/v1/trajectories", {"database": "shop", "preprocess_sql": "x"}, 422),
        ("POST", "/v1/trajectories/none/steps", step, 404),
        ("POST", "/v1/trajectories/bad/steps", step, 409),
        ("POST", "/v1/trajectories/a/steps", step, 410),
        ("POST", "/v1/trajectories/bad/steps", {}, 422),
        ("POST", "/v1/trajectories/none/reset", {}, 404),
        ("POST", "/v1/trajectories/bad/reset", {"epoch": 4}, 409),
        ("POST", "/v1/trajectories/a/reset", {}, 410),
        ("POST", "/v1/trajectories/a/reset", {"epoch": -1}, 422),
        ("POST", "/v1/trajectories/none/score", {}, 404),
        ("POST", "/v1/trajectories/none/heartbeat", None, 404),
        ("POST", "/v1/trajectories/a/heartbeat", None, 410),
        ("GET", "/v1/trajectories/none", None, 404),
        ("GET", "/v1/trajectories/none/steps", None, 404),
        ("GET", "/v1/trajectories?status=none", None, 422),
        ("GET", "/v1/trajectories?page_token=none", None, 422),
        ("GET", "/v1/trajectories/a/steps?limit=0", None, 422),
        ("DELETE", "/v1/trajectories", None, 422),
        ("GET", "/v1/databases/none/schema", None, 404),
        ("GET", "/v1/databases/shop/schema?count=perhaps", None, 422),
        ("GET", "/v1/tasks/none", None, 404),
        ("GET", "/v1/tasks?limit=x", None, 422),
        ("POST", "/v1/scores", {"task_id": "none", "sql": []}, 404),
        ("POST", "/v1/scores", {"task_id": "read_1"}, 422),
    ):
        assert (await ask(method, path, body)).status_code == status, (method, path)
    for seed, status in ((1, 201), (2, 503)):  # there is room for two
        response = await ask("POST", "/v1/trajectories", {"database": "shop", "seed": seed})
        assert response.status_code == status
    for name in sorted(ROUTES - OPEN):
        method, _, path = name.partition(" ")
        path = re.sub(r"\{\w+\}", "bad", path)
        if method == "POST":
            for content, status in ((b"{", 400), (b"x" * 4_000_001, 413)):
                if "heartbeat" not in path:
                    response = await ask.world.http.post(
                        path, content=content, headers={"content-type": "application/json"}
                    )
                    ask.check("POST", path, response)
                    assert response.status_code == status
        assert (await ask(method, path, Authorization="Bearer none")).status_code == 401
    assert (
        await ask("POST", "/v1/scores", {"task_id": "read_1", "sql": []}, Authorization="Bearer run")
    ).status_code == 403
    assert (await ask("POST", "/v1/trajectories/bad/score", {"sql": []}, Authorization="Bearer run")).status_code == 403

    # what fails
    async def full(group: Any) -> None:
        raise LedgerFault("no room")

    monkeypatch.setattr(ask.world.state.ledger, "_commit_together", full)
    assert (await ask("POST", "/v1/scores", {"task_id": "no_gold", "sql": []})).status_code == 503
    assert (await ask("DELETE", "/v1/trajectories/bad")).status_code == 503
    await ask.world.state.ledger.stop()
    assert (await ask("GET", "/readyz")).status_code == 503
    for name in sorted(ROUTES - OPEN):
        method, _, path = name.partition(" ")
        await ask(method, re.sub(r"\{\w+\}", "a", path) + ("?run_id=r" if method == "DELETE" else ""), {})

    missing = {name for name in ROUTES if not any(route == name for route, _ in ask.answered)}
    assert missing == set()


async def test_each_code_of_a_problem_fits_its_shape(ask: Checked) -> None:
    """The shape is open: a client must take a code that it does not know."""
    shape = ask.document["components"]["schemas"]["Problem"]
    assert "enum" not in json.dumps(shape)
    problem = validator(ask.document, "#/components/schemas/Problem")
    for code in ErrorCode:
        problem.validate(
            {"title": "t", "status": 500, "detail": "d", "code": str(code), "retryable": True, "more": [1]}
        )
    assert not problem.is_valid({"title": "t"})
