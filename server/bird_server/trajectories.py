"""The life of a trajectory: create, step, submit, reset, end.

Every operation on one trajectory holds its lock, so that two requests for it never interleave, and runs in a task of
its own, so that a client that hangs up cancels nothing. The order of things makes retries safe: a step is executed,
then committed to the ledger, then answered; a repeated step finds its reply in the ledger, or the executed result
still waiting for its commit, and is never executed twice. An episode that is over (submitted, or out of steps) gives
its replica and its place back at once; only `reset` makes it live again.

Left out: recovery of live trajectories after a crash (they are marked `server_restarted`), forks and rewinds.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from time import perf_counter
from typing import TypeVar

from bird_env.errors import (
    BirdEnvError,
    EpisodeOver,
    InvalidRequest,
    KeyReused,
    NothingSubmitted,
    PreprocessFailed,
    StaleEpoch,
    StepConflict,
    TrajectoryExists,
    TrajectoryGone,
    UnknownTrajectory,
)
from bird_env.models import (
    CreateTrajectory,
    EndReason,
    ExecuteSql,
    FirstObservation,
    Heartbeat,
    Observation,
    ObservationFormat,
    Outcome,
    PreprocessError,
    ResetRequest,
    Score,
    ScoreRequest,
    ScoreStatus,
    StepRequest,
    StepResult,
    Submit,
    Trajectory,
    TruncationReason,
)
from bird_env.tasks import Task
from bird_server.admission import Admission
from bird_server.clock import Clock
from bird_server.engine.port import Engine, Executed, FailedStatement
from bird_server.fingerprints import fingerprint
from bird_server.keyed_locks import KeyedLocks
from bird_server.ledger.models import TrajectoryRow
from bird_server.ledger.store import Ledger, Write
from bird_server.library import Library
from bird_server.limits import TrajectoryLimits
from bird_server.live import LiveTrajectory, Uncommitted, view_of_row
from bird_server.observations import OUTCOMES, is_heavy, observe
from bird_server.operations import Operations
from bird_server.prompts import Prompts
from bird_server.records import insert_score, insert_step, insert_trajectory, update_closed, update_ended, update_reset
from bird_server.schema_text import within_budget
from bird_server.scores import Scores, unscorable
from bird_server.settings import Settings
from bird_server.wire import to_json

log = logging.getLogger("bird_server.trajectories")

A = TypeVar("A")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply as its JSON text; `replayed` when it is the stored one."""

    body: str
    replayed: bool = False


class Trajectories:
    """All trajectories of one server."""

    def __init__(
        self,
        *,
        settings: Settings,
        clock: Clock,
        engine: Engine,
        ledger: Ledger,
        library: Library,
        scores: Scores,
        prompts: Prompts,
        operations: Operations,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._engine = engine
        self._ledger = ledger
        self._library = library
        self._scores = scores
        self._prompts = prompts
        self._live: dict[str, LiveTrajectory] = {}
        self._locks = KeyedLocks()
        self._operations = operations
        self._creating: dict[str, str | None] = {}
        self.admission = Admission(settings.capacity, settings.queue_limit)

    # ---- what the routes call ----

    async def create(self, trajectory_id: str, request: CreateTrajectory, wait_s: float) -> Answer:
        """Make a trajectory, or answer again what was answered to the same request under this id.

        Raises:
            InvalidRequest, UnknownTask, UnknownDatabase, PreprocessFailed, TrajectoryExists, TrajectoryGone,
            Overloaded.
        """
        return await self._operations.run(self._create(trajectory_id, request, wait_s))

    async def step(self, trajectory_id: str, request: StepRequest) -> Answer:
        """Run a step, or answer again what was answered to it.

        Raises:
            UnknownTrajectory, TrajectoryGone, EpisodeOver, StaleEpoch, StepConflict, KeyReused; a ServiceError when the
            fault is ours, after which the same step may be sent again.
        """
        return await self._operations.run(self._step(trajectory_id, request))

    async def reset(self, trajectory_id: str, request: ResetRequest, wait_s: float) -> Answer:
        """A fresh replica in a new epoch; an ended episode becomes live again, its lifetime starts anew."""
        return await self._operations.run(self._reset(trajectory_id, request, wait_s))

    async def score(self, trajectory_id: str, request: ScoreRequest) -> Score:
        """The submitted score again; with `sql`, that solution's, which changes nothing of the trajectory."""
        return await self._operations.run(self._score(trajectory_id, request))

    async def heartbeat(self, trajectory_id: str) -> Heartbeat:
        live = self._live.get(trajectory_id)
        if live is None:
            raise await self._not_live(trajectory_id)
        self._renew(live)
        return Heartbeat(trajectory_id=trajectory_id, lease_expires_at=live.lease_expires_at)

    async def get(self, trajectory_id: str) -> Trajectory:
        live = self._live.get(trajectory_id)
        if live is not None:
            self._renew(live)
            return live.view()
        return self.view(await self._row(trajectory_id))

    async def end(self, trajectory_id: str, reason: EndReason = EndReason.DELETED) -> None:
        """End a trajectory for good. Unknown and ended ones are nothing; a running step finishes first."""
        self.admission.call_off(
            trajectory_id, TrajectoryGone(f"The trajectory {trajectory_id!r} was ended.", end_reason=reason)
        )
        await self._operations.run(self._end(trajectory_id, reason))

    async def end_run(self, run_id: str) -> int:
        """End every trajectory of a run that lives or is being made; returns how many."""
        found = [live.trajectory_id for live in self._live.values() if live.run_id == run_id]
        found += [making for making, run in self._creating.items() if run == run_id and making not in self._live]
        await asyncio.gather(*(self.end(trajectory_id) for trajectory_id in found))
        return len(found)

    async def reap(self) -> int:
        """End what has outlived its lease or its lifetime, unless a request for it is at work. Returns how many."""
        now = self._clock.monotonic()
        expired = [
            (live.trajectory_id, EndReason.LIFETIME if now >= live.lifetime_deadline else EndReason.LEASE_EXPIRED)
            for live in list(self._live.values())
            if now >= min(live.lease_deadline, live.lifetime_deadline) and not self._locks.busy(live.trajectory_id)
        ]
        for trajectory_id, reason in expired:
            try:
                await self._operations.run(self._end(trajectory_id, reason, only_if_expired=True))
            except BirdEnvError as error:  # the others must still be ended; this one is tried again in the next round
                log.error("could not end %s: %s", trajectory_id, error)
        return len(expired)

    def close(self) -> None:
        """Take no more creates, and end the waits for a place: the server is ending."""
        self.admission.close()

    @property
    def live(self) -> int:
        return len(self._live)

    def live_by_run(self) -> dict[str, int]:
        return dict(Counter(live.run_id for live in self._live.values() if live.run_id is not None))

    def view(self, row: TrajectoryRow) -> Trajectory:
        """A trajectory as the ledger has it; a live one as it is in memory."""
        live = self._live.get(row.trajectory_id)
        return live.view() if live is not None else view_of_row(row)

    # ---- create and reset ----

    async def _create(self, trajectory_id: str, request: CreateTrajectory, wait_s: float) -> Answer:
        digest = fingerprint(request)
        async with self._locks.hold(trajectory_id), self._making(trajectory_id, request.run_id):
            earlier = await self._created_before(trajectory_id, digest)
            if earlier is not None:
                return earlier
            task, database, preprocess = await self._source(request)
            template = (await self._library.database(database)).digest
            limits = TrajectoryLimits.resolve(request.limits, self._settings)
            now = self._clock.now()
            live = LiveTrajectory(
                trajectory_id=trajectory_id,
                run_id=request.run_id,
                group_id=request.group_id,
                task_id=request.task_id,
                database=database,
                template=template,
                epoch=0,
                next_step_index=0,
                limits=limits,
                lease_s=min(request.lease_s or self._settings.lease_s, self._settings.max_lifetime_s),
                created_at=now,
                lifetime_expires_at=now,
                lifetime_deadline=0.0,
                metadata=request.metadata,
                seed=request.seed,
                format=request.format or self._settings.format,
                preprocess_sql=preprocess,
                fingerprint=digest,
            )
            first = await self._first_observation(live, task, request.prompt or self._settings.prompt)
            observation = to_json(first)

            def record(failed: FailedStatement | None) -> Write:
                nonlocal observation
                if failed is not None:
                    observation = to_json(_with_preprocess_error(first, failed, task))
                return insert_trajectory(live, observation)

            await self.admission.take(wait_s, trajectory_id)
            try:
                await self._with_replica(live, record)
            except BaseException:
                self.admission.give_back()
                raise
            self._live[trajectory_id] = live
            return self._created(live, observation)

    @asynccontextmanager
    async def _making(self, trajectory_id: str, run_id: str | None) -> AsyncGenerator[None]:
        """While it is made it belongs to its run already, so that ending the run ends it too."""
        self._creating[trajectory_id] = run_id
        try:
            yield
        finally:
            del self._creating[trajectory_id]

    async def _with_replica(self, live: LiveTrajectory, record: Callable[[FailedStatement | None], Write]) -> None:
        """Make the replica of the trajectory's present epoch and commit it; leaves no replica behind on failure."""
        self._start_lifetime(live)
        limits = self._preprocess_limits().engine()
        failed = await self._engine.acquire(live.key, live.template, live.preprocess_sql, limits)
        try:
            await self._ledger.write(record(failed))
        except BaseException:
            await self._engine.release(live.key)
            raise
        self._renew(live)

    def _preprocess_limits(self) -> TrajectoryLimits:
        """A task's own statements are held to the server's limits, not to what a client allows its policy."""
        return TrajectoryLimits.resolve(CreateTrajectory().limits, self._settings)

    async def _created_before(self, trajectory_id: str, digest: str) -> Answer | None:
        """The answer to an earlier create under this id, if there was one and it was the same request."""
        if trajectory_id not in self._live and not await self._ledger.knows(trajectory_id):
            return None
        row = await self._row(trajectory_id)
        if digest != row.fingerprint:
            raise TrajectoryExists(f"The trajectory {trajectory_id!r} was made by another request.")
        live = self._live.get(trajectory_id)
        if live is not None:
            self._renew(live)
        elif row.closed:
            raise self._gone(row)
        return Answer(_with_observation(self.view(row), row.first_observation), replayed=True)

    async def _source(self, request: CreateTrajectory) -> tuple[Task | None, str, list[str]]:
        """The task, the database's name and the statements to run first."""
        if (request.task_id is None) == (request.database is None):
            raise InvalidRequest("Name either `task_id` or `database`.")
        if request.task_id is None:
            return None, request.database or "", list(request.preprocess_sql or [])
        if request.preprocess_sql is not None:
            raise InvalidRequest("`preprocess_sql` goes with `database`; a task brings its own.")
        task = await self._library.task(request.task_id)
        return task, task.database, list(task.preprocess_sql)

    async def _first_observation(self, live: LiveTrajectory, task: Task | None, prompt: str) -> FirstObservation:
        issue_sql = list(task.issue_sql) if task else []
        objects = await self._library.schema(live.template)
        schema = within_budget(objects, live.limits.schema_chars, [*(issue_sql), task.issue if task else ""])
        filled = self._prompts.render(
            prompt,
            {
                "issue": task.issue if task else None,
                "evidence": task.evidence if task else None,
                "issue_sql": issue_sql,
                "schema": schema.text,
                "schema_truncated_chars": schema.truncated_chars,
                "database": live.database,
                "max_steps": live.limits.max_steps,
            },
        )
        return FirstObservation(
            text=filled.text,
            issue=task.issue if task else None,
            schema_text=schema.text,
            schema_truncated_chars=schema.truncated_chars,
            issue_sql=issue_sql,
            messages=list(filled.messages),
            prompt_template=filled.template,
        )

    async def _reset(self, trajectory_id: str, request: ResetRequest, wait_s: float) -> Answer:
        async with self._locks.hold(trajectory_id):
            live = await self._settled(trajectory_id)
            row = await self._row(trajectory_id)
            if live is not None:
                return await self._reset_live(live, request, row.first_observation)
            if row.closed:
                raise self._gone(row)
            _check_reset_epoch(request, row.epoch)
            live = LiveTrajectory.revived(row)
            live.epoch += 1
            await self.admission.take(wait_s, trajectory_id)
            try:
                await self._with_replica(live, lambda _: update_reset(live))
            except BaseException:
                self.admission.give_back()
                raise
            self._live[trajectory_id] = live
            return self._created(live, row.first_observation)

    async def _reset_live(self, live: LiveTrajectory, request: ResetRequest, observation: str) -> Answer:
        if request.epoch is not None and request.epoch == live.epoch - 1:
            self._renew(live)
            return self._created(live, observation, replayed=True)
        _check_reset_epoch(request, live.epoch)
        old_key = live.key
        live.epoch += 1
        try:
            await self._with_replica(live, lambda _: update_reset(live))
        except BaseException:
            live.epoch -= 1
            raise
        live.next_step_index = 0
        await self._engine.release(old_key)
        return self._created(live, observation)

    # ---- steps ----

    async def _step(self, trajectory_id: str, request: StepRequest) -> Answer:
        digest = fingerprint(request.action)
        async with self._locks.hold(trajectory_id):
            live = await self._settled(trajectory_id)
            if live is None:
                return await self._step_of_ended(trajectory_id, request, digest)
            self._renew(live)
            if request.epoch != live.epoch:
                raise StaleEpoch(f"The trajectory is in epoch {live.epoch}.", epoch=live.epoch)
            if request.step_index < live.next_step_index:
                return await self._stored_step(trajectory_id, request, digest)
            if request.step_index > live.next_step_index:
                raise StepConflict(
                    f"Step {request.step_index} came before step {live.next_step_index}.",
                    expected_step_index=live.next_step_index,
                )
            try:
                executed = await self._execute(live, request, digest)
            except TrajectoryGone:
                await self._finish(live, EndReason.FAULT)
                raise
            live.uncommitted = executed
            await self._commit(live, executed)
            return Answer(executed.reply)

    async def _execute(self, live: LiveTrajectory, request: StepRequest, digest: str) -> Uncommitted:
        started = perf_counter()
        last = request.step_index + 1 >= live.limits.max_steps
        score: Score | None = None
        executed: Executed | None = None
        heavy = False
        if isinstance(request.action, ExecuteSql):
            executed = await self._engine.execute(live.key, request.action.sql, live.limits.engine())
            heavy = is_heavy(executed.execution)
            observation = await _off_loop(
                heavy,
                lambda execution: observe(
                    execution, live.format, text_chars=live.limits.text_chars, cpu_s=live.limits.sql_cpu_s
                ),
                executed.execution,
            )
            ends = EndReason.MAX_STEPS if last else None
        else:
            score = await self._submission(live, request.action)
            observation = _submitted(score, live.format)
            ends = EndReason.SUBMITTED
        queue_ms = executed.queue_ms if executed else 0.0
        self._renew(live)
        result = StepResult(
            trajectory_id=live.trajectory_id,
            epoch=live.epoch,
            step_index=request.step_index,
            observation=observation,
            reward=score.reward if score else None,
            reward_parts=score.reward_parts if score else {},
            terminated=ends is EndReason.SUBMITTED,
            truncated=ends is EndReason.MAX_STEPS,
            truncation_reason=TruncationReason.MAX_STEPS if ends is EndReason.MAX_STEPS else None,
            outcome=_outcome(executed),
            elapsed_ms=round((perf_counter() - started) * 1e3 - queue_ms, 3),
            queue_ms=round(queue_ms, 3),
            lease_expires_at=None if ends else live.lease_expires_at,
            score=score,
        )
        reply, now = await _off_loop(heavy, to_json, result), self._clock.now()
        writes = [insert_step(request, digest, result, executed, reply=reply, at=now)]
        if isinstance(request.action, Submit) and score is not None:
            writes.append(
                insert_score(score, request.action.sql, at=now, trajectory_id=live.trajectory_id, epoch=live.epoch)
            )
        if ends is not None:
            writes.append(update_ended(live, ends, at=now, score=score, steps=request.step_index + 1))
        return Uncommitted(request.step_index, reply, writes, ends)

    async def _submission(self, live: LiveTrajectory, action: Submit) -> Score:
        if live.task_id is None:
            return unscorable(None, self._scores.versions)
        return await self._scores.score(live.task_id, action.sql)

    async def _settled(self, trajectory_id: str) -> LiveTrajectory | None:
        """The live trajectory, once a step whose commit failed is committed after all; None when it is not live."""
        live = self._live.get(trajectory_id)
        if live is not None and live.uncommitted is not None:
            await self._commit(live, live.uncommitted)
        return self._live.get(trajectory_id)

    async def _commit(self, live: LiveTrajectory, executed: Uncommitted) -> None:
        """Make an executed step stand. On failure it stays executed: whoever asks next commits it first."""
        await self._ledger.write(*executed.writes)
        live.uncommitted = None
        live.next_step_index = executed.step_index + 1
        if executed.ends is not None:
            self._live.pop(live.trajectory_id, None)
            await self._give_up(live)

    async def _stored_step(self, trajectory_id: str, request: StepRequest, digest: str) -> Answer:
        stored = await self._ledger.step(trajectory_id, request.epoch, request.step_index)
        if stored is None:
            raise StepConflict(f"Step {request.step_index} is not in the ledger.")
        if stored.fingerprint != digest:
            raise KeyReused(f"Step {request.step_index} of epoch {request.epoch} was sent before with another action.")
        return Answer(stored.reply, replayed=True)

    async def _step_of_ended(self, trajectory_id: str, request: StepRequest, digest: str) -> Answer:
        row = await self._row(trajectory_id)
        if request.epoch == row.epoch and request.step_index < row.next_step_index:
            return await self._stored_step(trajectory_id, request, digest)
        raise self._ended(row)

    # ---- score ----

    async def _score(self, trajectory_id: str, request: ScoreRequest) -> Score:
        async with self._locks.hold(trajectory_id):
            live = self._live.get(trajectory_id)
            if live is not None:
                self._renew(live)
            row = await self._row(trajectory_id)
            if request.sql is None:
                if live is not None or row.score is None:
                    raise NothingSubmitted()
                return Score.model_validate(json.loads(row.score))
            task_id = row.task_id
        if task_id is None:
            return unscorable(None, self._scores.versions)
        score = await self._scores.score(task_id, request.sql)
        await self.record_score(score, request.sql, trajectory_id=trajectory_id)
        return score

    async def record_score(self, score: Score, solution: Sequence[str], *, trajectory_id: str | None = None) -> None:
        """Keep a score that no step carries."""
        await self._ledger.write(insert_score(score, solution, at=self._clock.now(), trajectory_id=trajectory_id))

    # ---- end ----

    async def _end(self, trajectory_id: str, reason: EndReason, *, only_if_expired: bool = False) -> None:
        async with self._locks.hold(trajectory_id):
            live = self._live.get(trajectory_id)
            if live is None:
                row = None if only_if_expired else await self._ledger.trajectory(trajectory_id)
                if row is not None and not row.closed:
                    await self._ledger.write(update_closed(trajectory_id))
                return
            if only_if_expired and self._clock.monotonic() < min(live.lease_deadline, live.lifetime_deadline):
                return  # renewed while this waited
            await self._finish(live, reason)

    async def _finish(self, live: LiveTrajectory, reason: EndReason) -> None:
        """The replica and the place go whatever the ledger says: a place must not leak because a disk is full."""
        self._live.pop(live.trajectory_id, None)
        executed = live.uncommitted
        writes = list(executed.writes) if executed else []
        if executed is not None and executed.ends is not None:
            writes.append(update_closed(live.trajectory_id))
        else:
            steps = executed.step_index + 1 if executed else live.next_step_index
            writes.append(update_ended(live, reason, at=self._clock.now(), closed=True, steps=steps))
        try:
            await self._ledger.write(*writes)
        finally:
            await self._give_up(live)

    async def _give_up(self, live: LiveTrajectory) -> None:
        try:
            await self._engine.release(live.key)
        finally:
            self.admission.give_back()

    # ---- leases ----

    def _renew(self, live: LiveTrajectory) -> None:
        live.lease_deadline = self._clock.monotonic() + live.lease_s
        live.lease_expires_at = min(self._clock.now() + timedelta(seconds=live.lease_s), live.lifetime_expires_at)

    def _start_lifetime(self, live: LiveTrajectory) -> None:
        live.lifetime_deadline = self._clock.monotonic() + self._settings.max_lifetime_s
        live.lifetime_expires_at = self._clock.now() + timedelta(seconds=self._settings.max_lifetime_s)

    # ---- views and rows ----

    def _created(self, live: LiveTrajectory, observation: str, *, replayed: bool = False) -> Answer:
        return Answer(_with_observation(live.view(), observation), replayed)

    # ---- errors ----

    async def _row(self, trajectory_id: str) -> TrajectoryRow:
        row = await self._ledger.trajectory(trajectory_id)
        if row is None:
            raise UnknownTrajectory(f"No trajectory {trajectory_id!r}.")
        return row

    async def _not_live(self, trajectory_id: str) -> BirdEnvError:
        return self._ended(await self._row(trajectory_id))

    def _ended(self, row: TrajectoryRow) -> BirdEnvError:
        return (
            self._gone(row)
            if row.closed
            else EpisodeOver(f"The episode ended: {row.end_reason}.", end_reason=row.end_reason)
        )

    def _gone(self, row: TrajectoryRow) -> TrajectoryGone:
        return TrajectoryGone(
            f"The trajectory {row.trajectory_id!r} has ended: {row.end_reason}.", end_reason=row.end_reason
        )


async def _off_loop(heavy: bool, work: Callable[[A], T], argument: A) -> T:
    """Do it in a thread where it is heavy: everybody else's request waits for the event loop."""
    return await asyncio.to_thread(work, argument) if heavy else work(argument)


def _outcome(executed: Executed | None) -> Outcome:
    return Outcome.SUBMITTED if executed is None else OUTCOMES[executed.execution.outcome]


def _with_observation(view: Trajectory, observation: str) -> str:
    """The wire form of a CreatedTrajectory: the observation is stored as JSON and joined as such, not parsed again."""
    return f'{to_json(view)[:-1]},"observation":{observation}}}'


def _with_preprocess_error(first: FirstObservation, failed: FailedStatement, task: Task | None) -> FirstObservation:
    """A task whose preprocess_sql fails is offered as the evaluator will score it, and the failure is told.

    Raises:
        PreprocessFailed: The statements are the client's own, who can mend them.
    """
    if task is None:
        raise PreprocessFailed(
            f"Statement {failed.index} of preprocess_sql failed: {failed.message}", statement_index=failed.index
        )
    error = PreprocessError(statement_index=failed.index, message=failed.message)
    return first.model_copy(update={"preprocess_error": error})


def _check_reset_epoch(request: ResetRequest, epoch: int) -> None:
    if request.epoch is not None and request.epoch != epoch:
        raise StaleEpoch(f"The trajectory is in epoch {epoch}.", epoch=epoch)


def _submitted(score: Score, format: ObservationFormat) -> Observation:
    """What a policy reads of its submission: the verdict, nothing of gold or tests."""
    text = {
        ScoreStatus.SUCCESS: "Submitted. The solution is right.",
        ScoreStatus.FAILED: "Submitted. The solution is not right.",
        ScoreStatus.UNSCORABLE: "Submitted. There is nothing to score it with.",
    }[score.status]
    verdict = score.official.model_dump(mode="json") if score.official else None
    content = json.dumps([str(Outcome.SUBMITTED), str(score.status), verdict], sort_keys=True)
    return Observation(text=text, format=format, result_hash=hashlib.sha256(content.encode()).hexdigest())
