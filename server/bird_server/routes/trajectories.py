"""`/v1/trajectories`: rollouts and what is done with them."""

from __future__ import annotations

import asyncio
import hashlib
import re
import uuid
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from bird_env.errors import InvalidRequest
from bird_env.models import (
    CreatedTrajectory,
    CreateTrajectory,
    EndedRun,
    Heartbeat,
    Page,
    RecordedStep,
    ResetRequest,
    Score,
    ScoreRequest,
    StepRequest,
    StepResult,
    Trajectory,
    TrajectoryStatus,
)
from bird_server.auth import Scope, check_scope, requires
from bird_server.idempotency import HEADER, REPLAYED
from bird_server.openapi import IDEMPOTENCY_KEY, PREFER_WAIT, headers, problems
from bird_server.pages import DEFAULT_LIMIT, Limit, PageToken, decode_token, encode_token
from bird_server.state import State, state_of
from bird_server.steps import recorded
from bird_server.wire import raw_reply, reply

router = APIRouter(prefix="/v1/trajectories", tags=["trajectories"], dependencies=[Depends(requires(Scope.RUN))])

_WAIT = re.compile(r"(?:^|[,;]\s*)wait\s*=\s*(\d+(?:\.\d+)?)\b")


def wait_s(request: Request, state: State) -> float:
    """Seconds a client is ready to wait for a place: RFC 7240 `Prefer: wait=N`, cut to the server's bound."""
    settings = state.settings
    asked = _WAIT.search(request.headers.get("prefer", "").lower())
    return min(float(asked.group(1)), settings.max_queue_wait_s) if asked else settings.queue_wait_s


def _minted(key: str | None) -> str:
    """An id for a create that names none; the same for the same Idempotency-Key, so that a retry finds what it made."""
    return (
        hashlib.sha256(f"create {key}".encode("utf-8", "surrogatepass")).hexdigest()[:32] if key else uuid.uuid4().hex
    )


def _replayed(replayed: bool) -> Mapping[str, Any]:
    return REPLAYED if replayed else {}


@router.post(
    "",
    status_code=201,
    response_model=CreatedTrajectory,
    responses=problems(404, 409, 410, 503),
    openapi_extra=headers(IDEMPOTENCY_KEY, PREFER_WAIT),
)
async def create(body: CreateTrajectory, request: Request, state: Annotated[State, Depends(state_of)]) -> Response:
    """Make a private replica of a task's database and get the first observation. The same request again is replayed."""

    async def run() -> Response:
        trajectory_id = body.trajectory_id or _minted(request.headers.get(HEADER))
        answer = await state.trajectories.create(trajectory_id, body, wait_s(request, state))
        headers = {"Location": f"/v1/trajectories/{quote(trajectory_id)}", **_replayed(answer.replayed)}
        return raw_reply(answer.body, 201, **headers)

    return await state.replies.once(request, run)


@router.get("", response_model=Page[Trajectory], responses=problems(422, 503))
async def listed(
    state: Annotated[State, Depends(state_of)],
    run_id: Annotated[str | None, Query()] = None,
    group_id: Annotated[str | None, Query()] = None,
    status: Annotated[TrajectoryStatus | None, Query()] = None,
    limit: Limit = DEFAULT_LIMIT,
    page_token: PageToken = None,
) -> Response:
    """Trajectories in the order of their creation."""
    rows = await state.ledger.trajectories(
        run_id=run_id,
        group_id=group_id,
        status=status,
        after_seq=decode_token(page_token, int) or 0,
        limit=limit + 1,
    )
    items = [state.trajectories.view(row) for row in rows[:limit]]
    token = encode_token(rows[limit - 1].seq) if len(rows) > limit else None
    return reply(Page[Trajectory](items=items, next_page_token=token))


@router.delete("", response_model=EndedRun, responses=problems(422, 503))
async def end_run(state: Annotated[State, Depends(state_of)], run_id: Annotated[str, Query(min_length=1)]) -> Response:
    """End every live trajectory of a run."""
    return reply(EndedRun(run_id=run_id, ended=await state.trajectories.end_run(run_id)))


@router.get("/{trajectory_id}", response_model=Trajectory, responses=problems(404, 503))
async def get(trajectory_id: str, state: Annotated[State, Depends(state_of)]) -> Response:
    """The trajectory as it stands; renews its lease."""
    return reply(await state.trajectories.get(trajectory_id))


@router.delete("/{trajectory_id}", status_code=204, responses=problems(503))
async def end(trajectory_id: str, state: Annotated[State, Depends(state_of)]) -> Response:
    """End the trajectory and free its place. Always 204, for unknown and ended ones too."""
    await state.trajectories.end(trajectory_id)
    return Response(status_code=204)


@router.post("/{trajectory_id}/steps", response_model=StepResult, responses=problems(404, 409, 410, 503))
async def step(trajectory_id: str, body: StepRequest, state: Annotated[State, Depends(state_of)]) -> Response:
    """Run one action. SQL errors, timeouts and limits are outcomes under 200; the same step again is replayed."""
    answer = await state.trajectories.step(trajectory_id, body)
    return raw_reply(answer.body, **_replayed(answer.replayed))


@router.get("/{trajectory_id}/steps", response_model=Page[RecordedStep], responses=problems(404, 422, 503))
async def steps(
    trajectory_id: str,
    state: Annotated[State, Depends(state_of)],
    limit: Limit = DEFAULT_LIMIT,
    page_token: PageToken = None,
) -> Response:
    """Every acknowledged step, by (epoch, step_index)."""
    await state.trajectories.get(trajectory_id)
    place = decode_token(page_token, list) or [-1, -1]
    if len(place) != 2 or not all(isinstance(part, int) for part in place):
        raise InvalidRequest("`page_token` is none that this list gave.")
    rows = await state.ledger.steps(trajectory_id, after=(place[0], place[1]), limit=limit + 1)
    token = encode_token([rows[limit - 1].epoch, rows[limit - 1].step_index]) if len(rows) > limit else None
    return await asyncio.to_thread(
        lambda: reply(Page[RecordedStep](items=[recorded(row) for row in rows[:limit]], next_page_token=token))
    )


@router.post(
    "/{trajectory_id}/reset",
    response_model=CreatedTrajectory,
    responses=problems(404, 409, 410, 503),
    openapi_extra=headers(IDEMPOTENCY_KEY, PREFER_WAIT),
)
async def reset(
    trajectory_id: str,
    request: Request,
    state: Annotated[State, Depends(state_of)],
    body: ResetRequest | None = None,
) -> Response:
    """Back to the beginning, in a new epoch, on a fresh replica."""

    async def run() -> Response:
        answer = await state.trajectories.reset(
            trajectory_id, body or ResetRequest.model_validate({}), wait_s(request, state)
        )
        return raw_reply(answer.body, **_replayed(answer.replayed))

    return await state.replies.once(request, run)


@router.post(
    "/{trajectory_id}/score",
    response_model=Score,
    responses=problems(403, 404, 409, 503),
    openapi_extra=headers(IDEMPOTENCY_KEY),
)
async def score(
    trajectory_id: str,
    request: Request,
    state: Annotated[State, Depends(state_of)],
    body: ScoreRequest | None = None,
) -> Response:
    """The submitted score again; with `sql` (scope `admin`), that solution's score on the side."""
    asked = body or ScoreRequest()
    if asked.sql is not None:
        check_scope(request, Scope.ADMIN)

    async def run() -> Response:
        return reply(await state.trajectories.score(trajectory_id, asked))

    return await state.replies.once(request, run)


@router.post("/{trajectory_id}/heartbeat", response_model=Heartbeat, responses=problems(404, 409, 410, 503))
async def heartbeat(trajectory_id: str, state: Annotated[State, Depends(state_of)]) -> Response:
    """Renew the lease; every other call does so too."""
    return reply(await state.trajectories.heartbeat(trajectory_id))
