"""What the trajectories' routes themselves do: headers, lists, pages, bodies that may be left out."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.requests import Request

from bird_server.pages import encode_token
from bird_server.routes.trajectories import wait_s
from bird_world import GOLD, World, problem


@pytest.mark.parametrize(
    ("prefer", "expected"),
    [
        (None, 0.0),
        ("", 0.0),
        ("wait=30", 30.0),
        ("Wait=30", 30.0),
        ("wait = 2.5", 2.5),
        ("respond-async, wait=7", 7.0),
        ("handling=lenient; wait=7", 7.0),
        ("wait=99999", 300.0),
        ("wait=0", 0.0),
        ("wait=-5", 0.0),
        ("wait=abc", 0.0),
        ("await=9", 0.0),
        ("no-wait=9", 0.0),
        ("wait", 0.0),
    ],
)
async def test_the_wait_that_a_client_prefers_is_cut_to_the_servers(
    world: World, prefer: str | None, expected: float
) -> None:
    headers = [] if prefer is None else [(b"prefer", prefer.encode())]
    assert wait_s(Request({"type": "http", "headers": headers}), world.state) == expected


async def test_a_created_trajectory_has_a_location_its_replay_too(world: World) -> None:
    for body in ({"database": "shop"}, {"database": "shop", "trajectory_id": "a=1+b~c"}):
        for _ in range(2):
            response = await world.post("/v1/trajectories", body)
            assert response.status_code == 201
            found = await world.http.get(response.headers["location"])
            assert found.json()["trajectory_id"] == response.json()["trajectory_id"]
            if "trajectory_id" in body:
                assert found.json()["trajectory_id"] == body["trajectory_id"]


async def listed(world: World, **params: Any) -> list[str]:
    found: list[str] = []
    token: str | None = None
    while True:
        response = await world.http.get(
            "/v1/trajectories", params={**params, **({"page_token": token} if token else {})}
        )
        assert response.status_code == 200
        found += [each["trajectory_id"] for each in response.json()["items"]]
        token = response.json()["next_page_token"]
        if token is None:
            return found


async def test_trajectories_are_found_by_run_group_and_status_in_pages(world: World) -> None:
    for name, run, group in (("c", "r1", "g1"), ("a", "r1", "g2"), ("b", "r2", "g1")):
        await world.create(name, run_id=run, group_id=group)
    await world.http.delete("/v1/trajectories/a")
    assert await listed(world) == ["c", "a", "b"]
    assert await listed(world, limit=1) == ["c", "a", "b"]
    assert await listed(world, run_id="r1") == ["c", "a"]
    assert await listed(world, group_id="g1", limit=1) == ["c", "b"]
    assert await listed(world, status="ended") == ["a"]
    assert await listed(world, status="live", run_id="r1", group_id="g2") == []


async def test_a_list_shows_live_ones_as_they_stand(world: World) -> None:
    await world.create("a")
    await world.sql("SELECT 1", "a")
    (one,) = (await world.http.get("/v1/trajectories")).json()["items"]
    assert one == (await world.http.get("/v1/trajectories/a")).json()
    assert one["next_step_index"] == 1


TOKENS = ["", "x", "\x00", encode_token("text"), encode_token(2**70), encode_token(-(2**70)), encode_token([1, 2, 3])]


@pytest.mark.parametrize("token", [*TOKENS, encode_token([1, 1])])
async def test_a_token_of_no_page_of_trajectories_is_refused(world: World, token: str) -> None:
    problem(await world.http.get("/v1/trajectories", params={"page_token": token}), 422, "invalid_request")


@pytest.mark.parametrize("token", [*TOKENS, encode_token(1), encode_token([1, "1"]), encode_token([2**70, 1])])
async def test_a_token_of_no_page_of_steps_is_refused(world: World, token: str) -> None:
    await world.create("a")
    problem(await world.http.get("/v1/trajectories/a/steps", params={"page_token": token}), 422, "invalid_request")


async def test_steps_are_listed_over_epochs_and_after_the_end(world: World) -> None:
    await world.create(task_id="read_1")
    await world.sql("SELECT 1")
    await world.sql("SELECT 2")
    await world.post("/v1/trajectories/t1/reset", {"epoch": 0})
    world.steps["t1"] = (1, 0)
    await world.sql("SELECT 3")
    await world.submit([GOLD])
    await world.http.delete("/v1/trajectories/t1")
    first = (await world.http.get("/v1/trajectories/t1/steps", params={"limit": 3})).json()
    rest = (
        await world.http.get("/v1/trajectories/t1/steps", params={"limit": 3, "page_token": first["next_page_token"]})
    ).json()
    steps = first["items"] + rest["items"]
    assert [(step["epoch"], step["step_index"]) for step in steps] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [step["action"]["type"] for step in steps] == [*["execute_sql"] * 3, "submit"]
    assert steps[-1]["result"]["reward"] == 1.0
    assert rest["next_page_token"] is None


@pytest.mark.parametrize("route", ["reset", "score", "heartbeat"])
async def test_a_body_may_be_left_out(world: World, route: str) -> None:
    await world.create(task_id="read_1")
    bare = await world.http.post(f"/v1/trajectories/t1/{route}")
    empty = await world.post(f"/v1/trajectories/t1/{route}", {})
    expected = 409 if route == "score" else 200
    assert (bare.status_code, empty.status_code) == (expected, expected)


async def test_a_run_without_trajectories_is_ended_too(world: World) -> None:
    response = await world.http.delete("/v1/trajectories", params={"run_id": "never"})
    assert response.json() == {"run_id": "never", "ended": 0}
    problem(await world.http.delete("/v1/trajectories", params={"run_id": ""}), 422, "invalid_request")
