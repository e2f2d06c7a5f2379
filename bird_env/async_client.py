"""The asynchronous client: `Client` with its methods awaited, and its lists iterated with `async for`.

    async with AsyncClient() as client:
        async with client.trajectory(task_id="orders_1") as trajectory:
            result = await trajectory.execute("SELECT count(*) FROM orders")

For one event loop of asyncio; made for a thousand trajectories at once. What each method does and raises stands at
`Client`. To run many rollouts with their leases renewed and their failures as data, see `bird_env.rollout`.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from types import TracebackType
from typing import TypeVar, Unpack

import anyio
import httpx

from bird_env import _protocol
from bird_env._connection import CONNECT_TIMEOUT_S, READ_TIMEOUT_S, Connection, timeouts
from bird_env._lanes import MAX_LANES, AsyncLaneTransport
from bird_env._protocol import Call, Listing
from bird_env._retry import Attempts, Done, RetryPolicy
from bird_env.client import TrajectoryOptions
from bird_env.errors import ServiceError
from bird_env.models import (
    CreatedTrajectory,
    DatabaseInfo,
    DatabaseSchema,
    EndedRun,
    Health,
    Heartbeat,
    PoolStatus,
    RecordedStep,
    Score,
    StepRequest,
    StepResult,
    TaskInfo,
    ToolSchema,
    Trajectory,
    TrajectoryStatus,
    Version,
)
from bird_env.trajectory import AsyncTrajectoryHandle, Episode

T = TypeVar("T")


class AsyncClient:
    """The service, asynchronously; the arguments are those of `Client`."""

    def __init__(
        self,
        base_url: str | None = None,
        *,
        token: str | None = None,
        retry_for_s: float | None = None,
        retry: RetryPolicy | None = None,
        read_timeout_s: float = READ_TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        max_connections: int = MAX_LANES,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        connection = Connection.resolve(base_url, token, os.environ)
        policy = retry or RetryPolicy()
        self.retry = policy if retry_for_s is None else replace(policy, retry_for_s=retry_for_s)
        self._sleep = sleep
        self._clock = clock
        self._http = httpx.AsyncClient(
            base_url=connection.base_url,
            headers=connection.headers(),
            timeout=timeouts(connect_timeout_s, read_timeout_s),
            transport=transport or AsyncLaneTransport.to(connection, max_lanes=max_connections),
        )

    @property
    def base_url(self) -> str:
        return str(self._http.base_url)

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.base_url}>"

    async def call(self, call: Call[T]) -> T:
        attempts = Attempts(call, self.retry, self._clock())
        while True:
            outcome: httpx.Response | httpx.RequestError
            try:
                outcome = await self._http.request(
                    call.method, call.path, content=call.body, headers=call.all_headers()
                )
            except httpx.RequestError as error:
                outcome = error
            verdict = attempts.after(outcome, self._clock())
            if isinstance(verdict, Done):
                return verdict.value
            await self._sleep(verdict.seconds)

    async def _pages(self, listing: Listing[T]) -> AsyncIterator[T]:
        token: str | None = None
        while True:
            page = await self.call(listing(token))
            for item in page.items:
                yield item
            if page.next_page_token is None:
                return
            if page.next_page_token == token:
                raise ServiceError(f"the service gave the same page token twice: {token!r}")
            token = page.next_page_token

    # Trajectories as handles

    def trajectory(
        self,
        task_id: str | None = None,
        *,
        trajectory_id: str | None = None,
        wait_s: float | None = None,
        **options: Unpack[TrajectoryOptions],
    ) -> AsyncTrajectoryHandle:
        create = _protocol.trajectory_request(trajectory_id, {"task_id": task_id, **options})
        return AsyncTrajectoryHandle(self, Episode.of(create), wait_s=wait_s)

    def attach(self, trajectory_id: str) -> AsyncTrajectoryHandle:
        return AsyncTrajectoryHandle(self, Episode(trajectory_id))

    # Trajectories by id

    async def create_trajectory(
        self,
        task_id: str | None = None,
        *,
        trajectory_id: str | None = None,
        wait_s: float | None = None,
        **options: Unpack[TrajectoryOptions],
    ) -> CreatedTrajectory:
        create = _protocol.trajectory_request(trajectory_id, {"task_id": task_id, **options})
        return await self.call(_protocol.create_trajectory(create, wait_s=wait_s))

    async def get_trajectory(self, trajectory_id: str) -> Trajectory:
        return await self.call(_protocol.get_trajectory(trajectory_id))

    def list_trajectories(
        self,
        *,
        run_id: str | None = None,
        group_id: str | None = None,
        status: TrajectoryStatus | str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Trajectory]:
        return self._pages(
            _protocol.list_trajectories(run_id=run_id, group_id=group_id, status=status, limit=limit),
        )

    async def step(self, trajectory_id: str, request: StepRequest) -> StepResult:
        return await self.call(_protocol.step(trajectory_id, request))

    def steps(self, trajectory_id: str, *, limit: int | None = None) -> AsyncIterator[RecordedStep]:
        return self._pages(_protocol.list_steps(trajectory_id, limit=limit))

    async def reset_trajectory(self, trajectory_id: str, *, epoch: int) -> CreatedTrajectory:
        return await self.call(_protocol.reset_trajectory(trajectory_id, epoch=epoch))

    async def score_trajectory(self, trajectory_id: str, sql: str | list[str] | None = None) -> Score:
        return await self.call(_protocol.score_trajectory(trajectory_id, sql))

    async def heartbeat(self, trajectory_id: str) -> Heartbeat:
        return await self.call(_protocol.heartbeat(trajectory_id))

    async def delete_trajectory(self, trajectory_id: str) -> None:
        await self.call(_protocol.delete_trajectory(trajectory_id))

    async def end_run(self, run_id: str) -> EndedRun:
        return await self.call(_protocol.end_run(run_id))

    # Scores, databases, tasks

    async def score(self, task_id: str, sql: str | list[str]) -> Score:
        return await self.call(_protocol.create_score(task_id, sql))

    def databases(self, *, limit: int | None = None) -> AsyncIterator[DatabaseInfo]:
        return self._pages(_protocol.list_databases(limit=limit))

    async def schema(self, database: str, *, count: bool = False) -> DatabaseSchema:
        return await self.call(_protocol.get_schema(database, count=count))

    def tasks(
        self, *, database: str | None = None, category: str | None = None, limit: int | None = None
    ) -> AsyncIterator[TaskInfo]:
        return self._pages(_protocol.list_tasks(database=database, category=category, limit=limit))

    async def task(self, task_id: str) -> TaskInfo:
        return await self.call(_protocol.get_task(task_id))

    async def tools(self) -> list[ToolSchema]:
        return [tool async for tool in self._pages(_protocol.list_tools())]

    # The service itself

    async def pool(self) -> PoolStatus:
        return await self.call(_protocol.get_pool())

    async def health(self) -> Health:
        return await self.call(_protocol.get_health())

    async def ready(self) -> Health:
        return await self.call(_protocol.get_readiness())

    async def wait_until_ready(self, within_s: float = 60.0) -> Health:
        return await self.call(_protocol.await_readiness(within_s))

    async def version(self) -> Version:
        return await self.call(_protocol.get_version())
