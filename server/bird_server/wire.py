"""Replies as bytes: pydantic models to JSON, in one place.

A text of the database may hold what UTF-8 has not (a lone surrogate), so replies are written with ASCII escapes by the
json module instead of pydantic's own writer, which would refuse it. Infinity cannot appear: values are encoded.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from pydantic import BaseModel
from starlette.responses import Response


def _default(value: object) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    raise TypeError(f"{type(value).__name__} has no JSON form")


def to_json(model: BaseModel) -> str:
    """The wire form of a model."""
    return json.dumps(model.model_dump(mode="python"), default=_default, allow_nan=False, separators=(",", ":"))


def reply(model: BaseModel, status: int = 200, **headers: str) -> Response:
    """A JSON response. Header names are given with underscores."""
    return raw_reply(to_json(model), status, **headers)


def raw_reply(body: str, status: int = 200, **headers: str) -> Response:
    """A response whose JSON is already written, such as a stored one."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(body, status, named, "application/json")
