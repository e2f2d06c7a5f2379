"""Every endpoint of the service as data: what to send, and how to read what comes back. No I/O, no clock, no waiting.

A `Call[T]` holds method, percent-encoded path, the body's bytes and the reader of its reply; the functions below make
one each, and this module alone knows the service's paths. `Call.parse` gives the reply or raises the typed error:
by the `code` of a problem document, and by the status where something that is not the service (a proxy) answered.

Bodies are written in ASCII with JSON's own escapes, so that SQL with a lone surrogate, which is no UTF-8, reaches the
server as the policy wrote it. A body is written once a call: a repeat sends the same bytes under the same key.
Left out: sending (`client`, `async_client`) and repeating (`_retry`).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

import httpx
from pydantic import BaseModel, ValidationError

from bird_env.errors import (
    BirdEnvError,
    BodyTooLarge,
    Forbidden,
    InvalidRequest,
    NotFound,
    Problem,
    RequestError,
    ServiceError,
    Unauthorized,
)
from bird_env.models import (
    CreatedTrajectory,
    CreateScore,
    CreateTrajectory,
    DatabaseInfo,
    DatabaseSchema,
    EndedRun,
    Health,
    Heartbeat,
    Page,
    PoolStatus,
    RecordedStep,
    ResetRequest,
    Score,
    ScoreRequest,
    StepRequest,
    StepResult,
    TaskInfo,
    ToolSchema,
    Trajectory,
    TrajectoryStatus,
    Version,
    without_none,
)

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

#: What an error shows of a body that is no problem document: enough to know the proxy that wrote it.
EXCERPT_BYTES = 500

#: Errors for a refusal that did not come as a problem document; other 4xx are RequestError, the rest ServiceError.
BY_STATUS: dict[int, type[BirdEnvError]] = {401: Unauthorized, 403: Forbidden, 404: NotFound, 413: BodyTooLarge}

_NOT_OURS = "What answered is not the service: look at base_url, and at the proxies between here and there."


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request of one endpoint.

    Attributes:
        method: `GET`, `POST` or `DELETE`.
        path: Path and query below the base URL, percent-encoded.
        read: Makes the reply out of its JSON document; raises ValueError if it does not fit.
        body: The JSON body, or None.
        headers: Headers of this call, a key among them where the body does not hold one.
        also_replies: Statuses outside 2xx whose body may be a reply (`/readyz` answers 503 with its health).
        retry_for_s: The call's own retry budget in seconds; None: the policy's.
        request_id: Sent as X-Request-ID with every repeat.
    """

    method: str
    path: str
    read: Callable[[Any], T]
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    also_replies: frozenset[int] = frozenset()
    retry_for_s: float | None = None
    request_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def all_headers(self) -> dict[str, str]:
        headers = {"X-Request-ID": self.request_id, **self.headers}
        if self.body is not None:
            headers["Content-Type"] = "application/json"
        return headers

    def parse(self, response: httpx.Response) -> T:
        """The reply that a response (already read) carries.

        Raises:
            BirdEnvError: The response is an error, or cannot be read.
        """
        if response.is_success or response.status_code in self.also_replies:
            try:
                return self.read(_document(response))
            except (ValueError, RecursionError) as error:
                if response.is_success:
                    raise _unreadable(response, self.request_id, error) from error
        raise error_of(response, self.request_id)


Listing: TypeAlias = Callable[[str | None], Call[Page[T]]]
"""A list's pages: the call for a page, by its page token; None is the first."""


# --- trajectories -----------------------------------------------------------------------------------------------------


def create_trajectory(request: CreateTrajectory, *, wait_s: float | None = None) -> Call[CreatedTrajectory]:
    """`POST /v1/trajectories`. A request without trajectory_id gets one here, so that a repeat makes no second one.

    `wait_s`: how long the server may hold the request while the pool is full, before it answers 503 (`Prefer: wait`).
    """
    if request.trajectory_id is None:
        request = request.model_copy(update={"trajectory_id": new_id()})
    headers = {} if wait_s is None else {"Prefer": f"wait={wait_s:g}"}
    return _post("/v1/trajectories", CreatedTrajectory.model_validate, request, headers=headers)


def list_trajectories(
    *,
    run_id: str | None = None,
    group_id: str | None = None,
    status: TrajectoryStatus | str | None = None,
    limit: int | None = None,
) -> Listing[Trajectory]:
    filters = {"run_id": run_id, "group_id": group_id, "status": status, "limit": limit}
    return _listing("/v1/trajectories", Page[Trajectory].model_validate, filters)


def get_trajectory(trajectory_id: str) -> Call[Trajectory]:
    return _get(_trajectory(trajectory_id), Trajectory.model_validate)


def step(trajectory_id: str, request: StepRequest) -> Call[StepResult]:
    return _post(f"{_trajectory(trajectory_id)}/steps", StepResult.model_validate, request)


def list_steps(trajectory_id: str, *, limit: int | None = None) -> Listing[RecordedStep]:
    return _listing(f"{_trajectory(trajectory_id)}/steps", Page[RecordedStep].model_validate, {"limit": limit})


def reset_trajectory(trajectory_id: str, *, epoch: int) -> Call[CreatedTrajectory]:
    """`epoch` is the one that is to end; it makes a repeat harmless."""
    return _post(
        f"{_trajectory(trajectory_id)}/reset", CreatedTrajectory.model_validate, request(ResetRequest, epoch=epoch)
    )


def score_trajectory(trajectory_id: str, sql: str | list[str] | None = None) -> Call[Score]:
    return _post(
        f"{_trajectory(trajectory_id)}/score", Score.model_validate, request(ScoreRequest, sql=sql), headers=_key()
    )


def heartbeat(trajectory_id: str) -> Call[Heartbeat]:
    """Without a key: renewing twice is renewing once, and the server need not store the reply."""
    return Call("POST", f"{_trajectory(trajectory_id)}/heartbeat", Heartbeat.model_validate)


def delete_trajectory(trajectory_id: str, *, retry_for_s: float | None = None) -> Call[None]:
    return Call("DELETE", _trajectory(trajectory_id), _nothing, retry_for_s=retry_for_s)


def end_run(run_id: str) -> Call[EndedRun]:
    return Call("DELETE", "/v1/trajectories" + _query({"run_id": run_id}), EndedRun.model_validate)


# --- scores, databases, tasks -----------------------------------------------------------------------------------------


def create_score(task_id: str, sql: str | list[str]) -> Call[Score]:
    return _post("/v1/scores", Score.model_validate, request(CreateScore, task_id=task_id, sql=sql), headers=_key())


def list_databases(*, limit: int | None = None) -> Listing[DatabaseInfo]:
    return _listing("/v1/databases", Page[DatabaseInfo].model_validate, {"limit": limit})


def get_schema(database: str, *, count: bool = False) -> Call[DatabaseSchema]:
    """`count`: with the number of rows of each table."""
    query = _query({"count": "true"}) if count else ""
    return _get(f"/v1/databases/{_segment(database)}/schema{query}", DatabaseSchema.model_validate)


def list_tasks(
    *, database: str | None = None, category: str | None = None, limit: int | None = None
) -> Listing[TaskInfo]:
    filters = {"database": database, "category": category, "limit": limit}
    return _listing("/v1/tasks", Page[TaskInfo].model_validate, filters)


def get_task(task_id: str) -> Call[TaskInfo]:
    return _get(f"/v1/tasks/{_segment(task_id)}", TaskInfo.model_validate)


def list_tools() -> Listing[ToolSchema]:
    return _listing("/v1/tools", Page[ToolSchema].model_validate, {})


# --- the service itself -----------------------------------------------------------------------------------------------


def get_pool() -> Call[PoolStatus]:
    return _get("/v1/pool", PoolStatus.model_validate)


def get_health() -> Call[Health]:
    """Never repeated: who asks wants to know how it is now."""
    return Call("GET", "/healthz", Health.model_validate, also_replies=frozenset({503}), retry_for_s=0.0)


def get_readiness() -> Call[Health]:
    return Call("GET", "/readyz", Health.model_validate, also_replies=frozenset({503}), retry_for_s=0.0)


def await_readiness(within_s: float) -> Call[Health]:
    """Repeated until the service is ready: while it starts, 503 is an error to be retried."""
    return Call("GET", "/readyz", Health.model_validate, retry_for_s=within_s)


def get_version() -> Call[Version]:
    return _get("/version", Version.model_validate)


# --- how calls are made -----------------------------------------------------------------------------------------------


def new_id() -> str:
    """A trajectory id nobody else has."""
    return uuid.uuid4().hex


def trajectory_request(trajectory_id: str | None, fields: Mapping[str, Any]) -> CreateTrajectory:
    """The request for a new trajectory, under an id that is known before the server is asked.

    Raises:
        InvalidRequest: The fields do not fit.
    """
    return request(CreateTrajectory, trajectory_id=trajectory_id or new_id(), **fields)


def request(model: type[M], /, **fields: Any) -> M:
    """A request body out of the fields that were given.

    Raises:
        InvalidRequest: They do not fit; `fields["errors"]` lists where and why, as the server's own reply would.
    """
    try:
        return model.model_validate(without_none(fields))
    except ValidationError as error:
        raise invalid(error) from error


def invalid(error: ValidationError) -> InvalidRequest:
    found = [
        {"field": ".".join(str(part) for part in entry["loc"]) or "body", "message": entry["msg"]}
        for entry in error.errors(include_url=False)
    ]
    summary = "; ".join(f"{entry['field']}: {entry['message']}" for entry in found)
    return InvalidRequest(summary[:EXCERPT_BYTES], errors=found)


def encode(body: BaseModel) -> bytes:
    """A request as JSON in ASCII, without its empty fields.

    Raises:
        InvalidRequest: `metadata` holds what JSON cannot carry.
    """
    try:
        return json.dumps(
            body.model_dump(exclude_none=True), ensure_ascii=True, allow_nan=False, separators=(",", ":")
        ).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"the request cannot be written as JSON: {error}") from error


def _get(path: str, read: Callable[[Any], T]) -> Call[T]:
    return Call("GET", path, read)


def _post(path: str, read: Callable[[Any], T], body: BaseModel, *, headers: Mapping[str, str] | None = None) -> Call[T]:
    return Call("POST", path, read, body=encode(body), headers=headers or {})


def _listing(path: str, read: Callable[[Any], Page[T]], filters: Mapping[str, object]) -> Listing[T]:
    return lambda page_token: Call("GET", path + _query({**filters, "page_token": page_token}), read)


def _key() -> dict[str, str]:
    return {"Idempotency-Key": uuid.uuid4().hex}


def _trajectory(trajectory_id: str) -> str:
    return f"/v1/trajectories/{_segment(trajectory_id)}"


def _segment(text: str) -> str:
    """One segment of a path: a slash, a question mark or a dot in an id must not change which address it is."""
    try:
        quoted = quote(text, safe="")
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"an id must be valid Unicode, not {text!r}") from error
    if not quoted:
        raise InvalidRequest("an id must not be empty")
    return quoted.replace(".", "%2E") if quoted in (".", "..") else quoted


def _query(parameters: Mapping[str, object]) -> str:
    given = {name: str(value) for name, value in parameters.items() if value is not None}
    try:
        return "?" + urlencode(given, quote_via=quote, safe="") if given else ""
    except UnicodeEncodeError as error:
        raise InvalidRequest("a filter must be valid Unicode") from error


# --- how replies are read ---------------------------------------------------------------------------------------------


def _nothing(document: object) -> None:
    """The reader of a reply without a body."""


def _document(response: httpx.Response) -> Any:
    return None if response.status_code == HTTPStatus.NO_CONTENT else json.loads(response.content)


def error_of(response: httpx.Response, request_id: str) -> BirdEnvError:
    """The error that a response stands for. `fields["status"]` and `["body_excerpt"]` say what a stranger answered."""
    try:
        problem = Problem.model_validate(json.loads(response.content))
    except (ValueError, RecursionError):
        error = _stranger(response, request_id)
    else:
        error = BirdEnvError.from_problem(problem)
    if error.retry_after_s is None:
        error.retry_after_s = retry_after_s(response.headers)
    return error


def retry_after_s(headers: httpx.Headers) -> float | None:
    """Retry-After in seconds, in either form of RFC 9110 section 10.2.3; a date counts from the reply's own Date."""
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        wait = parsedate_to_datetime(text) - parsedate_to_datetime(headers.get("Date", ""))
    except (ValueError, TypeError):
        return None
    return max(wait, timedelta()).total_seconds()


def _stranger(response: httpx.Response, request_id: str) -> BirdEnvError:
    status = response.status_code
    said = f"HTTP {status} {response.reason_phrase}".rstrip()
    kind: type[BirdEnvError] = ServiceError
    if 300 <= status < 500 and status != HTTPStatus.TOO_MANY_REQUESTS:
        kind = BY_STATUS.get(status, RequestError)
    moved = response.headers.get("Location") if response.is_redirect else None
    return kind(
        f"{said}, moved to {moved}" if moved else f"{said}, without a problem document",
        hint=f"Give {moved} as base_url, without the path of the endpoint." if moved else _NOT_OURS,
        status=status,
        body_excerpt=_excerpt(response),
        request_id=request_id,
    )


def _unreadable(response: httpx.Response, request_id: str, error: Exception) -> ServiceError:
    why = str(error).splitlines()[0] if str(error) else type(error).__name__
    return ServiceError(
        f"HTTP {response.status_code}, but the reply cannot be read: {why[:EXCERPT_BYTES]}",
        hint=_NOT_OURS,
        status=response.status_code,
        body_excerpt=_excerpt(response),
        request_id=request_id,
    )


def _excerpt(response: httpx.Response) -> str:
    return response.content[:EXCERPT_BYTES].decode("utf-8", "replace")
