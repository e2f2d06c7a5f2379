"""`/v1/scores`: solutions scored without a trajectory, for benchmark runners."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from bird_env.models import CreateScore, Score
from bird_server.auth import Scope, requires
from bird_server.openapi import IDEMPOTENCY_KEY, headers, problems
from bird_server.state import State, state_of
from bird_server.wire import reply

router = APIRouter(prefix="/v1/scores", tags=["scores"], dependencies=[Depends(requires(Scope.ADMIN))])


@router.post("", response_model=Score, responses=problems(403, 404, 503), openapi_extra=headers(IDEMPOTENCY_KEY))
async def create(body: CreateScore, request: Request, state: Annotated[State, Depends(state_of)]) -> Response:
    """Score a solution of a task as the benchmark's evaluator would."""

    async def run() -> Response:
        score = await state.operations.run(state.scores.score(body.task_id, body.sql))
        await state.trajectories.record_score(score, body.sql)
        return reply(score)

    return await state.replies.once(request, run)
