"""Many rollouts at once: `run_rollouts(client, tasks, policy)` runs every task `group_size` times, and tells what came.

A policy is a function from a `Turn` (the chat messages so far, the last observation) to an action: SQL to execute, a
`Submit`, a `Move` where the model's own words should stand in the messages, or None to give up. It may be asynchronous;
a plain function is called in a thread. While it thinks, its trajectory's lease is renewed.

A rollout that fails is data, and never ends its siblings: its `RolloutResult` holds the error and whose fault it was,
and its reward is None. A reward is a number only where the policy earned it: what the service or the task did wrong
must be masked, not learned from. Cancelling `run_rollouts` ends the trajectories it had open.
"""

from __future__ import annotations

import inspect
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias, Unpack

import anyio
import anyio.to_thread

from bird_env._retry import is_passing
from bird_env.async_client import AsyncClient
from bird_env.client import TrajectoryOptions
from bird_env.errors import BirdEnvError, ServiceError, TaskError, TrajectoryGone, UnknownTrajectory
from bird_env.models import (
    ChatMessage,
    ExecuteSql,
    FirstObservation,
    Observation,
    Outcome,
    Score,
    StepResult,
    Submit,
    TaskInfo,
    TruncationReason,
)
from bird_env.trajectory import AsyncTrajectoryHandle

#: A lease is renewed this often within its time: one lost heartbeat must not end a rollout.
HEARTBEATS_A_LEASE = 3

#: Rollouts at once, unless the caller says otherwise.
CONCURRENCY = 64


@dataclass(frozen=True, slots=True)
class Move:
    """An action in the model's own words.

    Attributes:
        action: SQL to execute, an action of the wire, or None to give up.
        text: What the assistant's message says, such as a tool call with its reasoning.
        policy_version: Kept with the step, for off-policy corrections.
    """

    action: str | ExecuteSql | Submit | None
    text: str
    policy_version: str | int | None = None


ActionOrNone: TypeAlias = str | ExecuteSql | Submit | Move | None


@dataclass(frozen=True, slots=True)
class Turn:
    """What a policy acts on.

    Attributes:
        task_id: The task.
        trajectory_id: The rollout's trajectory.
        group_index: Which of the group's rollouts this is, from 0.
        step_index: The step that the action will be, from 0.
        messages: The chat so far: the prompt, then one assistant and one user message a step.
        observation: The last observation; the first one at step 0.
        last: The last step's reply; None at step 0.
    """

    task_id: str
    trajectory_id: str
    group_index: int
    step_index: int
    messages: tuple[ChatMessage, ...]
    observation: FirstObservation | Observation
    last: StepResult | None


Policy: TypeAlias = Callable[[Turn], ActionOrNone | Awaitable[ActionOrNone]]


class Fault(StrEnum):
    """Whose fault it was that a rollout has no reward. None of them is the policy's doing: all are masked.

    `ENV`: the service failed or ended the trajectory. `TASK`: its preprocess_sql fails, or nothing can score it.
    `POLICY_CODE`: the policy function raised. `REQUEST`: the service refused a request as it stood.
    """

    ENV = "env"
    TASK = "task"
    POLICY_CODE = "policy_code"
    REQUEST = "request"


@dataclass(frozen=True, slots=True)
class RolloutResult:
    """What came of one rollout.

    Attributes:
        task_id: The task.
        trajectory_id: Its trajectory; its steps stay readable at the service.
        group_id: Shared by the rollouts of one task in one call.
        group_index: From 0 within the group.
        reward: The submitted solution's; 0.0 for an episode that ended without one; None: mask it.
        steps: The replies to its steps.
        step_s: Seconds that each step took as the client saw it, retries included.
        messages: The chat, last observation included.
        score: The submitted solution's score.
        error: What ended it before its time.
        fault: Whose fault it was that there is no reward.
        unclosed: Why its trajectory could not be ended; its lease will end it.
        elapsed_s: Seconds from its creation to its end.
    """

    task_id: str
    trajectory_id: str
    group_id: str
    group_index: int
    reward: float | None = None
    steps: tuple[StepResult, ...] = ()
    step_s: tuple[float, ...] = ()
    messages: tuple[ChatMessage, ...] = ()
    score: Score | None = None
    error: Exception | None = None
    fault: Fault | None = None
    unclosed: BirdEnvError | None = None
    elapsed_s: float = 0.0

    @property
    def env_fault(self) -> bool:
        """Whether the service failed, or ended the trajectory: no word on the policy; try the rollout again."""
        return self.fault is Fault.ENV

    @property
    def masked(self) -> bool:
        """Whether a trainer must leave this rollout out of its loss."""
        return self.reward is None

    @property
    def truncation_reason(self) -> TruncationReason | None:
        return self.steps[-1].truncation_reason if self.steps else None


async def run_rollouts(
    client: AsyncClient,
    tasks: Iterable[str | TaskInfo],
    policy: Policy,
    *,
    group_size: int = 1,
    concurrency: int = CONCURRENCY,
    on_result: Callable[[RolloutResult], None] | None = None,
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    **options: Unpack[TrajectoryOptions],
) -> list[RolloutResult]:
    """Run every task `group_size` times, `concurrency` rollouts at once; results in the order of tasks and group.

    Args:
        client: Where the trajectories live.
        tasks: Task ids, or tasks; taken one by one as places get free.
        policy: See the module.
        group_size: Rollouts a task, under one `group_id`.
        concurrency: Rollouts at once.
        on_result: Called with each result as it comes.
        sleep: Waits between heartbeats, in seconds.
        **options: Of every trajectory, such as `run_id` or `limits`; `group_id` is made here.

    Raises:
        ValueError: `group_size` or `concurrency` is less than one.
    """
    if group_size < 1 or concurrency < 1:
        raise ValueError("group_size and concurrency are at least 1")
    batch = uuid.uuid4().hex
    options.setdefault("run_id", batch)
    results: dict[tuple[int, int], RolloutResult] = {}
    threads = anyio.CapacityLimiter(concurrency)

    def jobs() -> Iterator[_Rollout]:
        for index, task in enumerate(tasks):
            for member in range(group_size):
                group_id = f"{batch}-{index}"
                yield _Rollout(
                    client=client,
                    task_id=task if isinstance(task, str) else task.task_id,
                    place=(index, member),
                    group_id=group_id,
                    policy=policy,
                    threads=threads,
                    sleep=sleep,
                    options=options | {"group_id": group_id},
                )

    waiting = jobs()

    async def work() -> None:
        for rollout in waiting:
            result = await rollout.run()
            results[rollout.place] = result
            if on_result is not None:
                on_result(result)

    async with anyio.create_task_group() as workers:
        for _ in range(concurrency):
            workers.start_soon(work)
    return [results[place] for place in sorted(results)]


def fault_of(error: Exception) -> Fault:
    """Whose fault an error that ended a rollout was."""
    if isinstance(error, ServiceError | TrajectoryGone | UnknownTrajectory) or is_passing(error):
        return Fault.ENV
    if isinstance(error, TaskError):
        return Fault.TASK
    return Fault.REQUEST if isinstance(error, BirdEnvError) else Fault.POLICY_CODE


class _PolicyFailed(Exception):
    """Carries what the policy's own code raised, so that it is not taken for an error of the service."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(slots=True)
class _Rollout:
    """One trajectory from its creation to its end."""

    client: AsyncClient
    task_id: str
    place: tuple[int, int]
    group_id: str
    policy: Policy
    threads: anyio.CapacityLimiter
    sleep: Callable[[float], Awaitable[None]]
    options: TrajectoryOptions
    steps: list[StepResult] = field(default_factory=list[StepResult])
    step_s: list[float] = field(default_factory=list[float])
    messages: list[ChatMessage] = field(default_factory=list[ChatMessage])
    unclosed: BirdEnvError | None = None

    @property
    def trajectory_id(self) -> str:
        return f"{self.group_id}-{self.place[1]}"

    async def run(self) -> RolloutResult:
        started = time.monotonic()
        reward: float | None = None
        error: Exception | None = None
        fault: Fault | None = None
        try:
            await self._with_handle()
        except _PolicyFailed as failed:
            error, fault = failed.error, Fault.POLICY_CODE
        except BirdEnvError as failed:
            error, fault = failed, fault_of(failed)
        else:
            reward = self._reward()
            fault = Fault.TASK if reward is None else None
        return RolloutResult(
            task_id=self.task_id,
            trajectory_id=self.trajectory_id,
            group_id=self.group_id,
            group_index=self.place[1],
            reward=reward,
            steps=tuple(self.steps),
            step_s=tuple(self.step_s),
            messages=tuple(self.messages),
            score=self.steps[-1].score if self.steps else None,
            error=error,
            fault=fault,
            unclosed=self.unclosed,
            elapsed_s=time.monotonic() - started,
        )

    async def _with_handle(self) -> None:
        handle = self.client.trajectory(self.task_id, trajectory_id=self.trajectory_id, **self.options)
        try:
            await self._play(handle)
        finally:
            try:
                await handle.close()
            except BirdEnvError as error:
                self.unclosed = error

    async def _play(self, handle: AsyncTrajectoryHandle) -> None:
        observation: FirstObservation | Observation
        observation, info = await handle.reset()
        lease_s: float = info["trajectory"].lease_s
        self.messages.extend(observation.messages)
        while not handle.over:
            turn = Turn(
                task_id=self.task_id,
                trajectory_id=self.trajectory_id,
                group_index=self.place[1],
                step_index=handle.next_step_index,
                messages=tuple(self.messages),
                observation=observation,
                last=self.steps[-1] if self.steps else None,
            )
            move = await self._decide(turn, handle, lease_s)
            if move.action is None:
                return
            asked = time.perf_counter()
            observation, *_, info = await handle.step(move.action, policy_version=move.policy_version)
            self.step_s.append(time.perf_counter() - asked)
            self.steps.append(info["result"])
            self.messages.append(ChatMessage(role="assistant", content=move.text))
            self.messages.append(ChatMessage(role="user", content=observation.text))

    async def _decide(self, turn: Turn, handle: AsyncTrajectoryHandle, lease_s: float) -> Move:
        """What the policy does, with the lease renewed while it thinks."""
        failed: Exception | None = None
        move: Move | None = None
        async with anyio.create_task_group() as beside:
            beside.start_soon(self._renew, handle, lease_s / HEARTBEATS_A_LEASE)
            try:
                move = as_move(await self._ask(turn))
            except Exception as error:  # noqa: BLE001 - whatever a policy's code raises is that rollout's result
                failed = error
            beside.cancel_scope.cancel()
        if move is None:
            raise _PolicyFailed(failed or RuntimeError("the policy gave no move")) from failed
        return move

    async def _ask(self, turn: Turn) -> ActionOrNone:
        if inspect.iscoroutinefunction(self.policy) or inspect.iscoroutinefunction(type(self.policy).__call__):
            answer = self.policy(turn)
        else:
            # A cancelled run does not wait for a thread that is still thinking: its trajectory is ended at once.
            answer = await anyio.to_thread.run_sync(self.policy, turn, limiter=self.threads, abandon_on_cancel=True)
        return await answer if inspect.isawaitable(answer) else answer

    async def _renew(self, handle: AsyncTrajectoryHandle, every_s: float) -> None:
        while True:
            await self.sleep(every_s)
            try:
                await handle.heartbeat()
            except ServiceError:
                continue
            except BirdEnvError:
                return  # the trajectory has ended; its next step says why

    def _reward(self) -> float | None:
        if self.steps and self.steps[-1].outcome is Outcome.SUBMITTED:
            return self.steps[-1].reward
        return 0.0


def as_move(answer: object) -> Move:
    """A policy's answer as a move; an action alone says its own SQL.

    Raises:
        TypeError: It is none of the answers a policy may give.
    """
    if isinstance(answer, Move):
        return answer
    if answer is None:
        return Move(None, "")
    if isinstance(answer, str):
        return Move(answer, answer)
    if isinstance(answer, ExecuteSql):
        return Move(answer, answer.sql)
    if isinstance(answer, Submit):
        return Move(answer, "\n".join(answer.sql))
    raise TypeError(f"a policy answers with SQL, ExecuteSql, Submit, Move or None, not {type(answer).__name__}")
