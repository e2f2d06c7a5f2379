"""The synchronous client, for many threads: one line an endpoint over `_protocol`, with the retries of `_retry`.

    with Client() as client:                                    # BIRD_ENV_URL, else http://127.0.0.1:8000
        with client.trajectory(task_id="orders_1") as trajectory:
            print(trajectory.execute("SELECT count(*) FROM orders").observation.text)
            print(trajectory.submit("SELECT id FROM orders").reward)

Every method raises `bird_env.errors.BirdEnvError` and its kin, and nothing of httpx. `AsyncClient` has the same ones.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, TypedDict, TypeVar, Unpack

import httpx

from bird_env import _protocol
from bird_env._connection import CONNECT_TIMEOUT_S, READ_TIMEOUT_S, Connection, timeouts
from bird_env._lanes import MAX_LANES, LaneTransport
from bird_env._protocol import Call, Listing
from bird_env._retry import Attempts, Done, RetryPolicy
from bird_env.errors import ServiceError
from bird_env.models import (
    CreatedTrajectory,
    DatabaseInfo,
    DatabaseSchema,
    EndedRun,
    Health,
    Heartbeat,
    Limits,
    ObservationFormat,
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
from bird_env.trajectory import Episode, TrajectoryHandle

T = TypeVar("T")


class TrajectoryOptions(TypedDict, total=False):
    """What a trajectory is made of besides its task: the fields of `models.CreateTrajectory`."""

    database: str | None
    run_id: str | None
    group_id: str | None
    preprocess_sql: str | list[str] | None
    limits: Limits | Mapping[str, float]
    lease_s: float | None
    metadata: dict[str, Any]
    seed: int | None
    prompt: str | None
    format: ObservationFormat | str | None


class Client:
    """The service, synchronously.

    Args:
        base_url: `http://host:port`; else BIRD_ENV_URL, else http://127.0.0.1:8000.
        token: Bearer token; else BIRD_ENV_TOKEN.
        retry_for_s: Seconds for which a call is repeated, if not the policy's 300.
        retry: The whole retry policy.
        read_timeout_s: Seconds without a byte of a reply after which a request is repeated; longer than any step.
        connect_timeout_s: Seconds for a connection to be made.
        max_connections: Requests in flight at once; more wait in the client.
        transport: How requests travel, if not by sockets; see `bird_env.testing.in_process`.
        sleep, clock: Of the retries, in seconds.

    Raises:
        ValueError: base_url is no http(s) address, or the token cannot stand in a header.
    """

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
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        connection = Connection.resolve(base_url, token, os.environ)
        policy = retry or RetryPolicy()
        self.retry = policy if retry_for_s is None else replace(policy, retry_for_s=retry_for_s)
        self._sleep = sleep
        self._clock = clock
        self._http = httpx.Client(
            base_url=connection.base_url,
            headers=connection.headers(),
            timeout=timeouts(connect_timeout_s, read_timeout_s),
            transport=transport or LaneTransport.to(connection, max_lanes=max_connections),
        )

    @property
    def base_url(self) -> str:
        return str(self._http.base_url)

    def close(self) -> None:
        """Close the connections. Trajectories live on until they are ended, or their leases are."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.base_url}>"

    def call(self, call: Call[T]) -> T:
        """Send one call of `_protocol`, repeat it as the policy says, return its reply or raise its error."""
        attempts = Attempts(call, self.retry, self._clock())
        while True:
            outcome: httpx.Response | httpx.RequestError
            try:
                outcome = self._http.request(call.method, call.path, content=call.body, headers=call.all_headers())
            except httpx.RequestError as error:
                outcome = error
            verdict = attempts.after(outcome, self._clock())
            if isinstance(verdict, Done):
                return verdict.value
            self._sleep(verdict.seconds)

    def _pages(self, listing: Listing[T]) -> Iterator[T]:
        token: str | None = None
        while True:
            page = self.call(listing(token))
            yield from page.items
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
    ) -> TrajectoryHandle:
        """A handle on a new trajectory, of a task or of a `database`; made on the server when it is first used.

        Args:
            task_id: The task.
            trajectory_id: Its id, if not one made here.
            wait_s: How long the server may hold the creation while the pool is full.
            **options: See `TrajectoryOptions`.

        Raises:
            InvalidRequest: The fields do not fit.
        """
        create = _protocol.trajectory_request(trajectory_id, {"task_id": task_id, **options})
        return TrajectoryHandle(self, Episode.of(create), wait_s=wait_s)

    def attach(self, trajectory_id: str) -> TrajectoryHandle:
        """A handle on a trajectory that exists, to go on where it stands; used as a context manager, it ends it too."""
        return TrajectoryHandle(self, Episode(trajectory_id))

    # Trajectories by id

    def create_trajectory(
        self,
        task_id: str | None = None,
        *,
        trajectory_id: str | None = None,
        wait_s: float | None = None,
        **options: Unpack[TrajectoryOptions],
    ) -> CreatedTrajectory:
        """Make a trajectory; the arguments are those of `trajectory`. The caller ends it."""
        create = _protocol.trajectory_request(trajectory_id, {"task_id": task_id, **options})
        return self.call(_protocol.create_trajectory(create, wait_s=wait_s))

    def get_trajectory(self, trajectory_id: str) -> Trajectory:
        return self.call(_protocol.get_trajectory(trajectory_id))

    def list_trajectories(
        self,
        *,
        run_id: str | None = None,
        group_id: str | None = None,
        status: TrajectoryStatus | str | None = None,
        limit: int | None = None,
    ) -> Iterator[Trajectory]:
        """All trajectories that fit, a page at a time; `limit` is the size of a page."""
        return self._pages(
            _protocol.list_trajectories(run_id=run_id, group_id=group_id, status=status, limit=limit),
        )

    def step(self, trajectory_id: str, request: StepRequest) -> StepResult:
        """One step, under the caller's own epoch and index; `TrajectoryHandle.step` keeps both."""
        return self.call(_protocol.step(trajectory_id, request))

    def steps(self, trajectory_id: str, *, limit: int | None = None) -> Iterator[RecordedStep]:
        return self._pages(_protocol.list_steps(trajectory_id, limit=limit))

    def reset_trajectory(self, trajectory_id: str, *, epoch: int) -> CreatedTrajectory:
        """End the epoch `epoch` and begin the next; repeated, it is replayed."""
        return self.call(_protocol.reset_trajectory(trajectory_id, epoch=epoch))

    def score_trajectory(self, trajectory_id: str, sql: str | list[str] | None = None) -> Score:
        return self.call(_protocol.score_trajectory(trajectory_id, sql))

    def heartbeat(self, trajectory_id: str) -> Heartbeat:
        return self.call(_protocol.heartbeat(trajectory_id))

    def delete_trajectory(self, trajectory_id: str) -> None:
        """End a trajectory; unknown and ended ones are no error."""
        self.call(_protocol.delete_trajectory(trajectory_id))

    def end_run(self, run_id: str) -> EndedRun:
        """End every live trajectory of a run."""
        return self.call(_protocol.end_run(run_id))

    # Scores, databases, tasks

    def score(self, task_id: str, sql: str | list[str]) -> Score:
        """Score a solution without a trajectory."""
        return self.call(_protocol.create_score(task_id, sql))

    def databases(self, *, limit: int | None = None) -> Iterator[DatabaseInfo]:
        return self._pages(_protocol.list_databases(limit=limit))

    def schema(self, database: str, *, count: bool = False) -> DatabaseSchema:
        """Tables, columns, keys and CREATE statements; with `count`, the number of rows of each table, too."""
        return self.call(_protocol.get_schema(database, count=count))

    def tasks(
        self, *, database: str | None = None, category: str | None = None, limit: int | None = None
    ) -> Iterator[TaskInfo]:
        """All tasks that fit, a page at a time; `limit` is the size of a page."""
        return self._pages(_protocol.list_tasks(database=database, category=category, limit=limit))

    def task(self, task_id: str) -> TaskInfo:
        return self.call(_protocol.get_task(task_id))

    def tools(self) -> list[ToolSchema]:
        """The tools as OpenAI-compatible chat APIs take them."""
        return list(self._pages(_protocol.list_tools()))

    # The service itself

    def pool(self) -> PoolStatus:
        return self.call(_protocol.get_pool())

    def health(self) -> Health:
        """Whether the service runs, asked once.

        Raises:
            ServerUnreachable: It does not.
        """
        return self.call(_protocol.get_health())

    def ready(self) -> Health:
        """Whether the service takes trajectories, asked once: `status` is `ok` if it does."""
        return self.call(_protocol.get_readiness())

    def wait_until_ready(self, within_s: float = 60.0) -> Health:
        """Ask until the service takes trajectories.

        Raises:
            ServiceError: It does not, within `within_s`.
        """
        return self.call(_protocol.await_readiness(within_s))

    def version(self) -> Version:
        return self.call(_protocol.get_version())
