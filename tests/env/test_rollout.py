"""Many rollouts at once: policies of every kind, leases renewed, failures as data."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import anyio.lowlevel
import httpx
import pytest
import pytest_asyncio

from bird_env import AsyncClient, Fault, Limits, Move, RetryPolicy, RolloutResult, Submit, Turn, run_rollouts
from bird_env.errors import (
    BirdEnvError,
    InvalidRequest,
    Overloaded,
    PreprocessFailed,
    Problem,
    ServerUnreachable,
    ServiceError,
    StepConflict,
    TrajectoryGone,
    UnknownTask,
    UnknownTrajectory,
)
from bird_env.models import ExecuteSql, Outcome, TaskInfo, TruncationReason
from bird_env.rollout import as_move, fault_of
from bird_env.testing import in_process, in_process_async
from env.fake_server import WORLD, FakeServer
from env.faults import Faulty, reply_lost, unreachable

Sleep = Callable[[float], Awaitable[None]]


async def look_then_submit(turn: Turn) -> str | Submit:
    if turn.step_index == 0:
        return "SELECT count(*) FROM orders"
    return Submit(sql=WORLD.right if turn.group_index == 0 else WORLD.wrong)


class Setting:
    def __init__(self, server: FakeServer, client: AsyncClient) -> None:
        self.server = server
        self.client = client

    def ended(self) -> bool:
        return all(kept.ended for kept in self.server.trajectories.values())


@pytest_asyncio.fixture
async def setting() -> AsyncIterator[Setting]:
    server = FakeServer()
    async with in_process_async(server) as transport, AsyncClient("http://fake", transport=transport) as client:
        yield Setting(server, client)


async def test_groups_in_order_and_all_ended(setting: Setting) -> None:
    seen: list[RolloutResult] = []
    tasks = [setting_task async for setting_task in setting.client.tasks(database="shop")]
    results = await run_rollouts(
        setting.client, [*tasks, "ship_1"], look_then_submit, group_size=2, concurrency=3, on_result=seen.append
    )
    assert [(each.task_id, each.group_index) for each in results] == [
        (name, member) for name in ("shop_1", "shop_2", "ship_1") for member in (0, 1)
    ]
    assert [each.reward for each in results] == [1.0, 0.0] * 3
    assert sorted(each.trajectory_id for each in seen) == sorted(each.trajectory_id for each in results)
    assert len({each.group_id for each in results}) == 3
    assert all(each.error is None and each.fault is None and not each.masked for each in results)
    assert all(len(each.steps) == len(each.step_s) == 2 for each in results)
    assert setting.ended()
    runs = {kept.request.run_id for kept in setting.server.trajectories.values()}
    groups = {kept.request.group_id for kept in setting.server.trajectories.values()}
    assert len(runs) == 1
    assert groups == {each.group_id for each in results}


async def test_the_chat_grows_by_two_messages_a_step(setting: Setting) -> None:
    turns: list[Turn] = []

    async def policy(turn: Turn) -> Move | Submit:
        turns.append(turn)
        return (
            Move("SELECT 1", "<think>look</think>", policy_version=7)
            if turn.step_index == 0
            else Submit(sql=["a", "b"])
        )

    (result,) = await run_rollouts(setting.client, ["shop_1"], policy, run_id="run-1")
    assert [(each.role, each.content) for each in result.messages] == [
        ("user", "Mend it."),
        ("assistant", "<think>look</think>"),
        ("user", ""),
        ("assistant", "a\nb"),
        ("user", ""),
    ]
    assert [len(turn.messages) for turn in turns] == [1, 3]
    assert turns[0].last is None
    assert turns[1].last is not None
    assert turns[1].last.outcome is Outcome.OK
    steps = [each async for each in setting.client.steps(result.trajectory_id)]
    assert steps[0].policy_version == 7
    assert setting.server.trajectories[result.trajectory_id].request.run_id == "run-1"


async def test_a_plain_function_runs_in_a_thread(setting: Setting) -> None:
    threads: set[int] = set()

    def policy(turn: Turn) -> Submit:
        threads.add(threading.get_ident())
        return Submit(sql=WORLD.right)

    results = await run_rollouts(setting.client, ["shop_1"] * 3, policy)
    assert [each.reward for each in results] == [1.0] * 3
    assert threading.get_ident() not in threads


async def test_an_object_and_a_plain_function_may_be_awaited(setting: Setting) -> None:
    class Scripted:
        async def __call__(self, turn: Turn) -> Submit:
            return Submit(sql=WORLD.right)

    def promises(turn: Turn) -> Awaitable[Submit]:
        return Scripted()(turn)

    for policy in (Scripted(), promises):
        (result,) = await run_rollouts(setting.client, ["shop_1"], policy)
        assert result.reward == 1.0


async def test_giving_up_and_running_out_are_zero(setting: Setting) -> None:
    (given_up,) = await run_rollouts(setting.client, ["shop_1"], lambda turn: None)
    assert (given_up.reward, given_up.steps, given_up.truncation_reason) == (0.0, (), None)
    (ran_out,) = await run_rollouts(setting.client, ["shop_1"], lambda turn: "SELECT 1", limits=Limits(max_steps=3))
    assert (ran_out.reward, len(ran_out.steps)) == (0.0, 3)
    assert ran_out.truncation_reason is TruncationReason.MAX_STEPS
    assert setting.ended()


async def test_failures_are_data_and_end_no_sibling(setting: Setting) -> None:
    async def policy(turn: Turn) -> object:
        if turn.task_id == "shop_2":
            raise KeyError("a defect of the policy")
        if turn.task_id == "ship_1":
            return 42
        return Submit(sql=WORLD.right)

    results = await run_rollouts(setting.client, ["shop_1", "shop_2", "ship_1", "unknown"], policy)  # type: ignore[arg-type]
    right, broken, nonsense, unknown = results
    assert right.reward == 1.0
    assert (type(broken.error), broken.fault, broken.reward) == (KeyError, Fault.POLICY_CODE, None)
    assert (type(nonsense.error), nonsense.fault, nonsense.masked) == (TypeError, Fault.POLICY_CODE, True)
    assert (type(unknown.error), unknown.fault, unknown.env_fault) == (UnknownTask, Fault.REQUEST, False)
    assert setting.ended()


async def test_options_that_do_not_fit_are_data_too(setting: Setting) -> None:
    (result,) = await run_rollouts(setting.client, ["shop_1"], look_then_submit, run_id="no id")
    assert isinstance(result.error, InvalidRequest)
    assert result.fault is Fault.REQUEST


async def test_a_solution_nobody_can_score_is_masked(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    unscorable = {"task_id": "shop_1", "status": "unscorable", "reward": None}
    monkeypatch.setattr("env.fake_server.score", lambda task_id, sql: unscorable)
    (result,) = await run_rollouts(setting.client, ["shop_1"], look_then_submit)
    assert (result.reward, result.error, result.fault) == (None, None, Fault.TASK)
    assert result.masked
    assert not result.env_fault


async def test_a_trajectory_that_is_ended_by_others_is_the_environments(setting: Setting) -> None:
    async def policy(turn: Turn) -> str:
        setting.server.trajectories[turn.trajectory_id].ended = turn.step_index == 1
        return "SELECT 1"

    (result,) = await run_rollouts(setting.client, ["shop_1"], policy)
    assert isinstance(result.error, TrajectoryGone)
    assert result.env_fault
    assert result.reward is None
    assert len(result.steps) == 1


async def test_a_server_that_goes_away_is_the_environments() -> None:
    with in_process(FakeServer()) as inner:
        faulty = Faulty(inner, [])

        async def policy(turn: Turn) -> Submit:
            faulty.faults = [unreachable(httpx.ConnectError)] * 1000
            return Submit(sql=WORLD.right)

        async with AsyncClient("http://fake", transport=faulty, retry=RetryPolicy(retry_for_s=0.0)) as client:
            (result,) = await run_rollouts(client, ["shop_1"], policy)
    assert isinstance(result.error, ServerUnreachable)
    assert isinstance(result.unclosed, ServerUnreachable)
    assert result.env_fault
    assert result.reward is None


async def test_a_reward_survives_an_end_that_fails() -> None:
    with in_process(FakeServer()) as inner:
        faulty = Faulty(inner, [])

        async def policy(turn: Turn) -> str | Submit:
            if turn.step_index == 0:
                return "SELECT 1"
            faulty.faults = [lambda request, deliver: deliver(), *[reply_lost(httpx.ReadError)] * 9]
            return Submit(sql=WORLD.right)

        async with AsyncClient("http://fake", transport=faulty, retry=RetryPolicy(retry_for_s=0.0)) as client:
            (result,) = await run_rollouts(client, ["shop_1"], policy)
    assert (result.reward, result.error, result.fault) == (1.0, None, None)
    assert isinstance(result.unclosed, ServiceError)


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (Overloaded(), Fault.ENV),
        (ServerUnreachable(), Fault.ENV),
        (TrajectoryGone(), Fault.ENV),
        (UnknownTrajectory(), Fault.ENV),
        (
            BirdEnvError.from_problem(Problem(title="t", status=429, detail="d", code="quota", retryable=True)),
            Fault.ENV,
        ),
        (PreprocessFailed(), Fault.TASK),
        (UnknownTask(), Fault.REQUEST),
        (StepConflict(), Fault.REQUEST),
        (KeyError(), Fault.POLICY_CODE),
    ],
)
def test_whose_fault_an_error_is(error: Exception, fault: Fault) -> None:
    assert fault_of(error) is fault


class Ticker:
    """Sleeps that end when the test says so; remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.ticks = asyncio.Queue[None]()
        self.waiting = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        self.waiting.set()
        await self.ticks.get()

    async def tick(self) -> None:
        """Let one sleep pass, and wait until the next has begun."""
        self.waiting.clear()
        self.ticks.put_nowait(None)
        await self.waiting.wait()


async def test_a_slow_policy_keeps_its_lease(setting: Setting) -> None:
    ticker = Ticker()

    async def slow(turn: Turn) -> Submit:
        await ticker.waiting.wait()
        await ticker.tick()
        await ticker.tick()
        return Submit(sql=WORLD.right)

    (result,) = await run_rollouts(setting.client, ["shop_1"], slow, lease_s=90.0, sleep=ticker.sleep)
    assert result.reward == 1.0
    assert ticker.asked == [30.0, 30.0, 30.0]
    assert setting.server.calls["POST v1/trajectories/heartbeat"] == 2


async def test_heartbeats_outlive_an_outage_but_not_the_trajectory() -> None:
    ticker, told = Ticker(), asyncio.Event()

    def tell_it_is_gone(request: httpx.Request, deliver: Callable[[], httpx.Response]) -> httpx.Response:
        told.set()
        return httpx.Response(410, json=gone())

    with in_process(FakeServer()) as inner:
        faulty = Faulty(inner, [])

        async def slow(turn: Turn) -> Submit:
            await ticker.waiting.wait()
            faulty.faults = [unreachable(httpx.ConnectError)]
            await ticker.tick()
            await ticker.tick()
            faulty.faults = [tell_it_is_gone]
            ticker.ticks.put_nowait(None)
            await told.wait()
            return Submit(sql=WORLD.right)

        async with AsyncClient("http://fake", transport=faulty, retry=RetryPolicy(retry_for_s=0.0)) as client:
            (result,) = await run_rollouts(client, ["shop_1"], slow, sleep=ticker.sleep)
    assert len(ticker.asked) == 3
    assert result.reward == 1.0


def gone() -> dict[str, object]:
    return Problem(title="t", status=410, detail="d", code="trajectory_gone", retryable=False).model_dump()


async def test_no_more_at_once_than_allowed(setting: Setting) -> None:
    running, most = 0, 0

    async def policy(turn: Turn) -> Submit:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.lowlevel.checkpoint()
        running -= 1
        return Submit(sql=WORLD.right)

    results = await run_rollouts(setting.client, ["shop_1"] * 20, policy, concurrency=4)
    assert len(results) == 20
    assert 1 < most <= 4


async def test_cancelling_ends_what_was_open(setting: Setting) -> None:
    open_ones = 0
    all_open = asyncio.Event()

    async def forever(turn: Turn) -> str:
        nonlocal open_ones
        open_ones += 1
        if open_ones == 3:
            all_open.set()
        await asyncio.Event().wait()
        return ""

    running = asyncio.create_task(run_rollouts(setting.client, ["shop_1"] * 3, forever))
    await all_open.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(setting.server.trajectories) == 3
    assert setting.ended()


async def test_cancelling_does_not_wait_for_a_thread(setting: Setting) -> None:
    entered, release = threading.Event(), threading.Event()

    def forever(turn: Turn) -> str:
        entered.set()
        release.wait(60)
        return ""

    running = asyncio.create_task(run_rollouts(setting.client, ["shop_1"], forever))
    await asyncio.to_thread(entered.wait, 60)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert setting.ended()
    release.set()


@pytest.mark.parametrize("sizes", [{"group_size": 0}, {"concurrency": 0}])
async def test_sizes_are_at_least_one(setting: Setting, sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        await run_rollouts(setting.client, ["shop_1"], look_then_submit, **sizes)  # type: ignore[arg-type]


async def test_no_tasks_are_no_results(setting: Setting) -> None:
    nobody: list[TaskInfo] = []
    assert await run_rollouts(setting.client, nobody, look_then_submit) == []


def test_moves() -> None:
    assert as_move("SELECT 1") == Move("SELECT 1", "SELECT 1")
    assert as_move(ExecuteSql(sql="x")).text == "x"
    assert as_move(Submit(sql=["x", "y"])).text == "x\ny"
    assert as_move(None).action is None
    move = Move(None, "I give up")
    assert as_move(move) is move
    with pytest.raises(TypeError, match="int"):
        as_move(1)
