"""One table from errors to HTTP: every error of the tree has a status, every failure of a request one JSON shape.

`STATUS` gives the status of each code; `engine/errors.py` turns the storage engine's errors into ours before they get
here. Whatever reaches the middleware without being one of ours is a defect: it is logged with its traceback and
answered as `internal_error`, without a word of it.
"""

from __future__ import annotations

import json
import logging
import math
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from bird_env.errors import (
    BirdEnvError,
    ErrorCode,
    InternalError,
    InvalidRequest,
    MalformedRequest,
    MethodNotAllowed,
    NotFound,
    RequestError,
)

log = logging.getLogger("bird_server")

MEDIA_TYPE = "application/problem+json"

STATUS: dict[ErrorCode, int] = {
    ErrorCode.MALFORMED_REQUEST: 400,
    ErrorCode.UNAUTHORIZED: 401,
    ErrorCode.FORBIDDEN: 403,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.METHOD_NOT_ALLOWED: 405,
    ErrorCode.UNKNOWN_TRAJECTORY: 404,
    ErrorCode.UNKNOWN_TASK: 404,
    ErrorCode.UNKNOWN_DATABASE: 404,
    ErrorCode.BODY_TOO_LARGE: 413,
    ErrorCode.INVALID_REQUEST: 422,
    ErrorCode.KEY_REUSED: 422,
    ErrorCode.TRAJECTORY_EXISTS: 409,
    ErrorCode.STEP_CONFLICT: 409,
    ErrorCode.STALE_EPOCH: 409,
    ErrorCode.EPISODE_OVER: 409,
    ErrorCode.NOTHING_SUBMITTED: 409,
    ErrorCode.TRAJECTORY_GONE: 410,
    ErrorCode.PREPROCESS_FAILED: 422,
    ErrorCode.DATA_ERROR: 422,
    ErrorCode.OVERLOADED: 503,
    ErrorCode.SHUTTING_DOWN: 503,
    ErrorCode.STORE_FULL: 503,
    ErrorCode.STARVED: 503,
    ErrorCode.SCORER_FAULT: 503,
    ErrorCode.LEDGER_FAULT: 503,
    ErrorCode.SERVER_UNREACHABLE: 503,
    ErrorCode.INTERNAL_ERROR: 500,
}

#: Seconds a client is told to wait when the error itself does not say.
DEFAULT_RETRY_AFTER_S = 1.0


def problem_response(error: BirdEnvError, request: Request) -> Response:
    """The problem document of an error, with its headers."""
    status = STATUS[error.code]
    body: dict[str, Any] = {
        **error.fields,
        "type": f"urn:bird-env:error:{error.code}",
        "title": error.title,
        "status": status,
        "detail": error.detail,
        "instance": request.url.path,
        "code": str(error.code),
        "retryable": error.retryable,
        "hint": error.hint,
        "request_id": request.scope.get("bird_env.request_id"),
    }
    if "trajectory_id" in request.path_params:
        body["trajectory_id"] = request.path_params["trajectory_id"]
    headers: dict[str, str] = {}
    if status == 503:
        retry_after_s = error.retry_after_s if error.retry_after_s is not None else DEFAULT_RETRY_AFTER_S
        body["retry_after_s"] = retry_after_s
        headers["Retry-After"] = str(max(1, math.ceil(retry_after_s)))
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status == 405:
        headers["Allow"] = ", ".join(_allowed(request))
    return Response(json.dumps(body, default=str), status, headers, MEDIA_TYPE)


def _allowed(request: Request) -> list[str]:
    """The methods that some route takes at this address (RFC 9110, 15.5.6); the router names those of one route."""

    def taken(method: str) -> bool:
        scope = {**request.scope, "method": method}
        return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)

    found = [method for method in ("GET", "POST", "PUT", "PATCH", "DELETE") if taken(method)]
    return [*found[:1], "HEAD", *found[1:]] if "GET" in found else found  # the middleware makes HEAD of every GET


def defect_response(error: Exception, request: Request) -> Response:
    """The reply to a failure that is none of ours: the log has its traceback, the caller its request_id."""
    log.error("request %s failed: %s", request.scope.get("bird_env.request_id"), request.url.path, exc_info=error)
    return problem_response(InternalError(), request)


def install(app: FastAPI) -> None:
    """Make every failure of every route a problem document."""

    async def ours(request: Request, error: Exception) -> Response:
        if not isinstance(error, BirdEnvError):
            raise error
        return problem_response(error, request)

    async def invalid(request: Request, error: Exception) -> Response:
        if not isinstance(error, RequestValidationError):
            raise error
        return problem_response(_from_validation(error, request.headers.get("content-type")), request)

    async def http(request: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            raise error
        return problem_response(_from_http(error), request)

    app.add_exception_handler(BirdEnvError, ours)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)


def _from_http(error: HTTPException) -> BirdEnvError:
    """The router's own refusals: no route, another method, a body that is not JSON text."""
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return MethodNotAllowed()
    if error.status_code == HTTPStatus.NOT_FOUND:
        return NotFound()
    if error.status_code == HTTPStatus.BAD_REQUEST:
        return MalformedRequest()
    return RequestError(str(error.detail))


def _from_validation(error: RequestValidationError, content_type: str | None) -> BirdEnvError:
    found = error.errors()
    if any(each["type"] == "json_invalid" for each in found):
        where = found[0].get("ctx", {}).get("error", "not JSON")
        return MalformedRequest(f"The body is not JSON: {where}.")
    if any(isinstance(each.get("input"), bytes) for each in found):
        came = "without a Content-Type" if not content_type else f"with Content-Type: {content_type[:100]}"
        return MalformedRequest(f"`Content-Type: application/json` is missing: the body came {came}.")
    errors = [
        {"field": ".".join(str(part) for part in each["loc"][1:]) or "body", "message": str(each["msg"])}
        for each in found
    ]
    detail = "; ".join(f"{each['field']}: {each['message']}" for each in errors[:5])
    return InvalidRequest(detail, errors=errors)
