"""A trajectory in the hand: the handle that steps it, scores it and, whatever happens, ends it.

`TrajectoryHandle` and `AsyncTrajectoryHandle` keep the epoch and the next step index, so that a caller gives only
actions. A handle makes its trajectory on the server at the first call that needs one; its id is known before, so that
`close` can end a trajectory whose creation was never answered. One handle takes one call at a time, from any thread
(or task): a trajectory is a sequence. What both share, without I/O, is `Episode`.

    with client.trajectory(task_id="orders_1") as trajectory:
        observation, info = trajectory.reset()
        observation, reward, terminated, truncated, info = trajectory.step("SELECT count(*) FROM orders")
        result = trajectory.submit(["SELECT id FROM orders"])

A call that fails leaves index and epoch as they were: the same action again is the same step, executed at most once.
To go on with another action after a fault that left it open whether the step ran, call `refresh` first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio

from bird_env import _protocol
from bird_env._protocol import Call
from bird_env._retry import RetryPolicy
from bird_env.errors import BirdEnvError, ServiceError
from bird_env.models import (
    CreatedTrajectory,
    CreateTrajectory,
    ExecuteSql,
    FirstObservation,
    Heartbeat,
    Observation,
    Outcome,
    RecordedStep,
    Score,
    StepRequest,
    StepResult,
    Submit,
    Trajectory,
    TrajectoryStatus,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bird_env.async_client import AsyncClient
    from bird_env.client import Client

ActionLike: TypeAlias = str | ExecuteSql | Submit
"""What `step` takes: SQL to execute, or an action as the wire has it."""

Info: TypeAlias = dict[str, Any]

StepTuple: TypeAlias = tuple[Observation, float | None, bool, bool, Info]
"""observation, reward, terminated, truncated, info: the order of gymnasium's `Env.step`.

The reward is 0.0 for a step that has none of its own, and None where a submitted solution could not be scored.
"""

#: Seconds for which an end is repeated: if the server stays away, the lease ends the trajectory anyway.
CLOSE_FOR_S = 10.0


class Episode:
    """What a handle knows of its trajectory. No I/O.

    Args:
        trajectory_id: The id.
        create: The request that makes the trajectory; None: it exists, see `Client.attach`.
    """

    def __init__(self, trajectory_id: str, create: CreateTrajectory | None = None) -> None:
        self.trajectory_id = trajectory_id
        self.create = create
        self.maybe_made = False
        self.trajectory: Trajectory | None = None
        self.first: FirstObservation | None = None
        self.epoch = 0
        self.next_step_index = 0
        self.untouched = False
        self.over = False

    @classmethod
    def of(cls, create: CreateTrajectory) -> Episode:
        if create.trajectory_id is None:
            raise ValueError("a trajectory's id must be known before it is made")
        return cls(create.trajectory_id, create)

    def began(self, created: CreatedTrajectory) -> None:
        """The trajectory was created or reset; or it was there already, made by the same request under the same id."""
        self.seen(created)
        self.first = created.observation
        self.untouched = self.next_step_index == 0 and not self.over

    def failed(self, error: BaseException) -> None:
        """The creation failed. A refusal made nothing, and the id may be another's; anything else leaves it open."""
        self.maybe_made = not isinstance(error, BirdEnvError) or isinstance(error, ServiceError)

    @property
    def to_end(self) -> bool:
        """Whether there may be something on the server to end."""
        return self.create is None or self.maybe_made

    def seen(self, trajectory: Trajectory) -> None:
        self.trajectory = trajectory
        self.maybe_made = True
        self.epoch = trajectory.epoch
        self.next_step_index = trajectory.next_step_index
        self.over = trajectory.status is TrajectoryStatus.ENDED
        self.untouched = False

    def request(self, action: ActionLike, policy_version: str | int | None) -> StepRequest:
        self.untouched = False
        return _protocol.request(
            StepRequest,
            epoch=self.epoch,
            step_index=self.next_step_index,
            action=ExecuteSql(sql=action) if isinstance(action, str) else action,
            policy_version=policy_version,
        )

    def stepped(self, result: StepResult) -> StepResult:
        self.next_step_index = result.step_index + 1
        self.over = result.terminated or result.truncated
        return result

    def end(self, policy: RetryPolicy) -> Call[None]:
        self.over, self.untouched = True, False
        return _protocol.delete_trajectory(self.trajectory_id, retry_for_s=min(CLOSE_FOR_S, policy.retry_for_s))

    def beginning(self) -> tuple[FirstObservation, Info]:
        if self.first is None or self.trajectory is None:
            raise RuntimeError("the trajectory was not begun")
        return self.first, {
            "trajectory_id": self.trajectory_id,
            "epoch": self.epoch,
            "task_id": self.trajectory.task_id,
            "database": self.trajectory.database,
            "trajectory": self.trajectory,
        }


def as_tuple(result: StepResult) -> StepTuple:
    """A step's reply in gymnasium's order; `info["result"]` is the reply itself."""
    reward = result.reward
    if reward is None and result.outcome is not Outcome.SUBMITTED:
        reward = 0.0
    info: Info = {
        "trajectory_id": result.trajectory_id,
        "epoch": result.epoch,
        "step_index": result.step_index,
        "outcome": result.outcome,
        "truncation_reason": result.truncation_reason,
        "reward_parts": result.reward_parts,
        "score": result.score,
        "elapsed_ms": result.elapsed_ms,
        "result": result,
    }
    return result.observation, reward, result.terminated, result.truncated, info


def as_submit(sql: str | list[str]) -> Submit:
    return _protocol.request(Submit, sql=sql)


class _Handle:
    """What both handles answer without asking the server."""

    _episode: Episode

    @property
    def trajectory_id(self) -> str:
        return self._episode.trajectory_id

    @property
    def epoch(self) -> int:
        """The epoch that the next step belongs to: +1 at each reset."""
        return self._episode.epoch

    @property
    def next_step_index(self) -> int:
        return self._episode.next_step_index

    @property
    def over(self) -> bool:
        """Whether the episode has ended: submitted, out of steps, or ended by the server."""
        return self._episode.over

    @property
    def trajectory(self) -> Trajectory | None:
        """The trajectory as the server last described it: at its creation, its reset or a `refresh`."""
        return self._episode.trajectory

    def __repr__(self) -> str:
        here = self._episode
        return (
            f"<{type(self).__name__} {here.trajectory_id!r} epoch={here.epoch} next_step_index={here.next_step_index}>"
        )


class TrajectoryHandle(_Handle):
    """One trajectory, through a `Client`; made by `Client.trajectory` and `Client.attach`. A context manager."""

    def __init__(self, client: Client, episode: Episode, *, wait_s: float | None = None) -> None:
        self._client = client
        self._episode = episode
        self._wait_s = wait_s
        self._lock = threading.RLock()

    def open(self) -> TrajectoryHandle:
        """Make the trajectory now, or look it up if it exists. Further calls do nothing."""
        with self._lock:
            here = self._episode
            if here.trajectory is None:
                if here.create is None:
                    here.seen(self._client.get_trajectory(here.trajectory_id))
                    return self
                try:
                    here.began(self._client.call(_protocol.create_trajectory(here.create, wait_s=self._wait_s)))
                except BaseException as error:
                    here.failed(error)
                    raise
        return self

    def reset(self) -> tuple[FirstObservation, Info]:
        """The trajectory at its beginning: (observation, info). A trajectory nobody has stepped is not made anew."""
        with self._lock:
            here = self.open()._episode
            if not here.untouched:
                here.began(self._client.reset_trajectory(here.trajectory_id, epoch=here.epoch))
            return here.beginning()

    def step(self, action: ActionLike, *, policy_version: str | int | None = None) -> StepTuple:
        """One action: (observation, reward, terminated, truncated, info).

        Raises:
            EpisodeOver: The episode has ended.
            TrajectoryGone: The trajectory has ended: its lease ran out, or somebody ended it.
            ServiceError: No reply within the retries; never an observation, never a reward.
        """
        return as_tuple(self._step(action, policy_version))

    def execute(self, sql: str, *, policy_version: str | int | None = None) -> StepResult:
        """Execute one text of SQL, perhaps of several statements. SQL that fails is a result, not an exception."""
        return self._step(ExecuteSql(sql=sql), policy_version)

    def submit(self, sql: str | list[str], *, policy_version: str | int | None = None) -> StepResult:
        """Submit the solution, a statement or a list of them: it is scored, and the episode ends."""
        return self._step(as_submit(sql), policy_version)

    def _step(self, action: ActionLike, policy_version: str | int | None) -> StepResult:
        with self._lock:
            here = self.open()._episode
            return here.stepped(self._client.step(here.trajectory_id, here.request(action, policy_version)))

    def score(self, sql: str | list[str] | None = None) -> Score:
        """The submitted score again; or, with the scope for it, the score of `sql` on the side."""
        return self._client.score_trajectory(self.trajectory_id, sql)

    def heartbeat(self) -> Heartbeat:
        """Renew the lease. Every other call does, too."""
        return self._client.heartbeat(self.trajectory_id)

    def refresh(self) -> Trajectory:
        """Ask the server where the trajectory stands, and go on from there."""
        with self._lock:
            found = self._client.get_trajectory(self.trajectory_id)
            self._episode.seen(found)
            return found

    def steps(self) -> Iterator[RecordedStep]:
        """The steps so far, of all epochs, as the ledger keeps them."""
        return self._client.steps(self.trajectory_id)

    def close(self) -> None:
        """End the trajectory. Harmless if it has ended, or was never made."""
        if self._episode.to_end:
            self._client.call(self._episode.end(self._client.retry))

    def __enter__(self) -> TrajectoryHandle:
        try:
            return self.open()
        except BaseException as error:
            if self._episode.create is not None:
                self.__exit__(type(error), error, error.__traceback__)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except BirdEnvError as failed:
            if error is None:
                raise
            error.add_note(_NOT_CLOSED.format(self.trajectory_id, failed))


_NOT_CLOSED = "trajectory {} could not be ended either ({}); its lease will end it"


class AsyncTrajectoryHandle(_Handle):
    """`TrajectoryHandle` for an `AsyncClient`: the same methods, awaited."""

    def __init__(self, client: AsyncClient, episode: Episode, *, wait_s: float | None = None) -> None:
        self._client = client
        self._episode = episode
        self._wait_s = wait_s
        self._lock = anyio.Lock(fast_acquire=True)

    async def open(self) -> AsyncTrajectoryHandle:
        async with self._lock:
            await self._open()
        return self

    async def _open(self) -> Episode:
        here = self._episode
        if here.trajectory is None:
            if here.create is None:
                here.seen(await self._client.get_trajectory(here.trajectory_id))
                return here
            try:
                here.began(await self._client.call(_protocol.create_trajectory(here.create, wait_s=self._wait_s)))
            except BaseException as error:
                here.failed(error)
                raise
        return here

    async def reset(self) -> tuple[FirstObservation, Info]:
        async with self._lock:
            here = await self._open()
            if not here.untouched:
                here.began(await self._client.reset_trajectory(here.trajectory_id, epoch=here.epoch))
            return here.beginning()

    async def step(self, action: ActionLike, *, policy_version: str | int | None = None) -> StepTuple:
        return as_tuple(await self._step(action, policy_version))

    async def execute(self, sql: str, *, policy_version: str | int | None = None) -> StepResult:
        return await self._step(ExecuteSql(sql=sql), policy_version)

    async def submit(self, sql: str | list[str], *, policy_version: str | int | None = None) -> StepResult:
        return await self._step(as_submit(sql), policy_version)

    async def _step(self, action: ActionLike, policy_version: str | int | None) -> StepResult:
        async with self._lock:
            here = await self._open()
            return here.stepped(await self._client.step(here.trajectory_id, here.request(action, policy_version)))

    async def score(self, sql: str | list[str] | None = None) -> Score:
        return await self._client.score_trajectory(self.trajectory_id, sql)

    async def heartbeat(self) -> Heartbeat:
        return await self._client.heartbeat(self.trajectory_id)

    async def refresh(self) -> Trajectory:
        async with self._lock:
            found = await self._client.get_trajectory(self.trajectory_id)
            self._episode.seen(found)
            return found

    def steps(self) -> AsyncIterator[RecordedStep]:
        return self._client.steps(self.trajectory_id)

    async def close(self) -> None:
        """End the trajectory, even where the caller is being cancelled."""
        if self._episode.to_end:
            with anyio.CancelScope(shield=True):
                await self._client.call(self._episode.end(self._client.retry))

    async def __aenter__(self) -> AsyncTrajectoryHandle:
        try:
            return await self.open()
        except BaseException as error:
            if self._episode.create is not None:
                await self.__aexit__(type(error), error, error.__traceback__)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except BirdEnvError as failed:
            if error is None:
                raise
            error.add_note(_NOT_CLOSED.format(self.trajectory_id, failed))
