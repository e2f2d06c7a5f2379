"""The OpenAPI document: what FastAPI makes of the routes, and what it cannot know.

The shape of a problem and where it is given, the statuses that the layers under a route answer by themselves (a token
is missing, a body is too large or no JSON), the ways to send a token, and the headers that a route reads by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from bird_env.errors import Problem
from bird_env.tasks.record import is_list, is_object
from bird_server.idempotency import MAX_KEY_CHARS
from bird_server.problems import MEDIA_TYPE

_PROBLEM = f"#/components/schemas/{Problem.__name__}"

#: What a request with a body can be refused with before its route sees it.
_OF_A_BODY = (400, 413, 422)

_TOKENS: dict[str, Any] = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "api_key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}


def problems(*statuses: int, guarded: bool = True) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route: these statuses, and those that every route can give, as problem documents.

    Args:
        guarded: Whether the route asks for a token, where tokens are configured.
    """
    every = {*statuses, 500, *((401,) if guarded else ())}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {"schema": {"$ref": _PROBLEM}}}}
        for status in sorted(every)
    }


def _header(name: str, description: str, **bounds: int) -> dict[str, Any]:
    schema = {"type": "string", **bounds}
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}


IDEMPOTENCY_KEY = _header(
    "Idempotency-Key",
    "Names this request for good: repeated with the same body it gets the stored reply (`Idempotent-Replayed: true`).",
    minLength=1,
    maxLength=MAX_KEY_CHARS,
)
PREFER_WAIT = _header("Prefer", "`wait=SECONDS`: how long to wait for a place when the pool is full.")


def headers(*parameters: dict[str, Any]) -> dict[str, Any]:
    """The `openapi_extra` of a route that reads these headers."""
    return {"parameters": list(parameters)}


def describe(app: FastAPI) -> None:
    """Make `app.openapi()` the whole document. Made once, when it is first asked for."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas[Problem.__name__] = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    _require_tags(schemas)
    components["securitySchemes"] = _TOKENS
    for path in document["paths"].values():
        for operation in path.values():
            _complete(operation)
    return document


def _require_tags(schemas: dict[str, Any]) -> None:
    """What tells the shapes of a union apart must be sent, although Python fills it in when it makes one."""
    for union in _unions(schemas):
        tag: str = union["discriminator"]["propertyName"]
        for reference in union["discriminator"]["mapping"].values():
            shape = schemas[reference.rpartition("/")[2]]
            shape["properties"][tag].pop("default", None)
            shape["required"] = [tag, *(name for name in shape.get("required", ()) if name != tag)]


def _unions(node: Any) -> Iterator[dict[str, Any]]:
    if is_list(node):
        for each in node:
            yield from _unions(each)
    elif is_object(node):
        if "discriminator" in node:
            yield node
        for each in node.values():
            yield from _unions(each)


def _complete(operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    own = [422] if "422" in responses else []  # FastAPI's own shape of it is not ours
    for status in [*own, *(_OF_A_BODY if "requestBody" in operation else ())]:
        responses[str(status)] = problems(status)[status]
    if "401" in responses:
        operation["security"] = [*({name: list[str]()} for name in _TOKENS), {}]
    operation["responses"] = dict(sorted(responses.items()))
