"""Problem documents in the OpenAPI description of a route."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from bird_env.errors import Problem
from bird_server.problems import MEDIA_TYPE


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route: these statuses, and those that every route can give, as problem documents."""
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": {"$ref": f"#/components/schemas/{Problem.__name__}"}}},
        }
        for status in sorted({*statuses, 401, 500})
    }
