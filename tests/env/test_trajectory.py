"""What a handle knows without asking."""

from __future__ import annotations

import httpx
import pytest

from bird_env import Client, Outcome, StepResult
from bird_env.errors import InvalidRequest
from bird_env.models import CreateTrajectory, Observation, ObservationFormat, Submit
from bird_env.testing import in_process
from bird_env.trajectory import Episode, as_submit, as_tuple
from env.fake_server import FakeServer


def result(outcome: Outcome, reward: float | None) -> StepResult:
    return StepResult(
        trajectory_id="t",
        epoch=2,
        step_index=5,
        observation=Observation(text="", format=ObservationFormat.TABLE),
        outcome=outcome,
        reward=reward,
        terminated=outcome is Outcome.SUBMITTED,
        elapsed_ms=1.0,
    )


@pytest.mark.parametrize(
    ("outcome", "reward", "expected"),
    [
        (Outcome.OK, None, 0.0),
        (Outcome.TIMEOUT, None, 0.0),
        (Outcome.SUBMITTED, 1.0, 1.0),
        (Outcome.SUBMITTED, 0.0, 0.0),
        (Outcome.SUBMITTED, None, None),
    ],
)
def test_a_reward_is_none_only_where_nothing_could_score(
    outcome: Outcome, reward: float | None, expected: float | None
) -> None:
    reply = result(outcome, reward)
    observation, given, terminated, truncated, info = as_tuple(reply)
    assert given == expected
    assert (terminated, truncated) == (reply.terminated, False)
    assert observation is reply.observation
    assert info["result"] is reply
    assert (info["epoch"], info["step_index"], info["outcome"]) == (2, 5, outcome)


def test_a_statement_alone_is_a_list_of_one() -> None:
    assert as_submit("SELECT 1; SELECT 2") == Submit(sql=["SELECT 1; SELECT 2"])
    assert as_submit(["a", "b"]).sql == ["a", "b"]
    with pytest.raises(InvalidRequest):
        as_submit([1])  # type: ignore[list-item]


def test_an_episode_needs_its_id() -> None:
    with pytest.raises(ValueError, match="id"):
        Episode.of(CreateTrajectory(task_id="a"))
    with pytest.raises(RuntimeError):
        Episode("t").beginning()


def test_nothing_is_made_before_it_is_needed() -> None:
    with in_process(FakeServer()) as transport:
        requests: list[httpx.Request] = []
        with Client("http://fake", transport=transport) as client:
            client._http.event_hooks = {"request": [requests.append]}
            trajectory = client.trajectory("shop_1")
            trajectory.close()
            assert requests == []
            assert "next_step_index=0" in repr(trajectory)
            assert trajectory.trajectory is None
            trajectory.reset()
            trajectory.reset()
            assert [each.method for each in requests] == ["POST"]
            assert trajectory.trajectory is not None
            trajectory.close()
            assert [each.method for each in requests] == ["POST", "DELETE"]
            assert trajectory.over


def test_a_trajectory_that_was_there_already_is_begun_anew() -> None:
    """A trainer that restarts under its old ids must not take a used database for a fresh one."""
    with in_process(FakeServer()) as transport, Client("http://fake", transport=transport) as client:
        before = client.trajectory(database="shop", trajectory_id="mine")
        before.execute("CREATE TABLE left_behind(x)")
        with client.trajectory(database="shop", trajectory_id="mine") as trajectory:
            assert trajectory.next_step_index == 1
            _, info = trajectory.reset()
            assert info["epoch"] == 1
            assert trajectory.execute("SELECT * FROM left_behind").outcome is Outcome.SQL_ERROR


def test_an_attached_handle_resets_to_begin() -> None:
    with in_process(FakeServer()) as transport, Client("http://fake", transport=transport) as client:
        name = client.create_trajectory("shop_1").trajectory_id
        with client.attach(name) as trajectory:
            observation, info = trajectory.reset()
            assert info["epoch"] == 1
            assert observation.messages
