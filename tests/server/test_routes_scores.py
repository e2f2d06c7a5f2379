"""`POST /v1/scores`: a verdict without a trajectory, kept in the ledger, given once under a key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from bird_env.models import Score
from bird_server.ledger.models import ScoreRow
from bird_world import GOLD, World, problem, serving


async def kept(world: World) -> list[ScoreRow]:
    return await world.state.ledger._all(  # pyright: ignore[reportPrivateUsage]
        select(ScoreRow).order_by(ScoreRow.seq)
    )


async def test_every_score_that_was_given_is_kept(world: World) -> None:
    for sql in ([GOLD], "SELECT 1"):
        Score.model_validate((await world.post("/v1/scores", {"task_id": "read_1", "sql": sql})).json())
    rows = await kept(world)
    assert [(row.trajectory_id, row.task_id, row.solution) for row in rows] == [
        (None, "read_1", [GOLD]),
        (None, "read_1", ["SELECT 1"]),
    ]


async def test_a_key_scores_once(world: World) -> None:
    body = {"task_id": "read_1", "sql": [GOLD]}
    replies = [await world.post("/v1/scores", body, Idempotency_Key="k") for _ in range(2)]
    assert replies[0].text == replies[1].text
    assert len(await kept(world)) == 1


async def test_a_score_takes_no_place_and_no_replica(world: World) -> None:
    for number in range(4):
        await world.create(f"t{number}")
    assert (await world.post("/v1/scores", {"task_id": "read_1", "sql": [GOLD]})).json()["reward"] == 1.0
    assert world.state.engine.statistics().live == 4


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"task_id": "none", "sql": []}, 404, "unknown_task"),
        ({"task_id": "", "sql": []}, 422, "invalid_request"),
        ({"task_id": "read_1"}, 422, "invalid_request"),
        ({"task_id": "read_1", "sql": None}, 422, "invalid_request"),
        ({"task_id": "read_1", "sql": [1]}, 422, "invalid_request"),
        ({"task_id": "read_1", "sql": [], "gold": []}, 422, "invalid_request"),
    ],
)
async def test_what_makes_no_sense_is_refused_and_not_kept(
    world: World, body: dict[str, Any], status: int, code: str
) -> None:
    problem(await world.post("/v1/scores", body), status, code)
    assert await kept(world) == []


async def test_it_needs_the_scope_admin(tmp_path: Path) -> None:
    """Whoever scores at will can try until it is right, which a policy's side must not."""
    async with serving(tmp_path / "data", run_token="run", admin_token="admin") as world:
        body = {"task_id": "read_1", "sql": [GOLD]}
        problem(await world.post("/v1/scores", body), 401, "unauthorized")
        refused = problem(await world.post("/v1/scores", body, Authorization="Bearer run"), 403, "forbidden")
        assert refused["required_scope"] == "admin"
        assert (await world.post("/v1/scores", body, Authorization="Bearer admin")).status_code == 200
