"""The demonstration: the real server, a world of its own, many trajectories at once through the client, and a verdict.

`run(folder, trajectories)` imports the sample database and its tasks into a new data directory, starts the server as a
process of its own, and plays the scripted policy of `demo_world` through `run_rollouts`. Every script looks around and
tries its statements first; then all trajectories wait for each other, so that the disk they use is measured while all
are live; then all submit. What a script knows it must get (outcomes, verdicts) is compared with what came, and each
difference is a surprise. So is a template whose bytes have changed, or a trajectory that is still live at the end.

Left out: printing (`commands/demo.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bird_env import AsyncClient, ExecuteSql, Limits, Outcome, RolloutResult, Submit, Turn, run_rollouts
from bird_env.models import PoolStatus
from bird_env.tasks import Task
from bird_server.catalogue import Catalogue
from bird_server.database_files import DatabaseFile
from bird_server.datadir import DataDirectory
from bird_server.demo_world import DATABASE, TASKS, Script, build_database, script
from bird_server.importing import import_database
from bird_server.server_process import ServerProcess
from bird_snapshots.template import TemplateStore

#: Processor time after which a runaway statement is stopped; the scripts' own statements take a thousandth of it.
RUNAWAY_CPU_S = 0.2

#: Outcomes of steps that are told apart from statements which ran or failed.
NOT_STATEMENTS = (Outcome.TIMEOUT, Outcome.SUBMITTED)

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Line:
    """The trajectories of one kind: of a category, or of a kind of script."""

    name: str
    trajectories: int
    succeeded: int
    expected: int
    steps: int


@dataclass(frozen=True, slots=True)
class DemoReport:
    """What the demonstration showed; the contract of `--json`.

    `expected` counts the submissions that must succeed. Latencies are the client's, in milliseconds: `execute` of
    statements that ran or failed, `stopped` of runaways (each burns `RUNAWAY_CPU_S` of processor time), `submit` of
    submissions, scoring included; `engine` is the part of `execute` that the server's engine took. `disk_bytes` is what
    all live trajectories used beyond the template, at the moment when all had done their writing; `copies_bytes` what a
    copy of the file for each would have used. `surprises` must be empty.
    """

    trajectories: int
    tasks: int
    live_at_once: int
    steps: int
    elapsed_s: float
    steps_per_s: float
    categories: list[Line]
    scripts: list[Line]
    execute_ms_p50: float | None
    execute_ms_p99: float | None
    engine_ms_p50: float | None
    stopped_ms_p50: float | None
    submit_ms_p50: float | None
    submit_ms_p99: float | None
    replicas_served: int
    disk_bytes: int
    copies_bytes: int
    template_bytes: int
    template_sha256_before: str
    template_sha256_after: str
    surprises: list[str]

    @property
    def ok(self) -> bool:
        return not self.surprises


@dataclass(frozen=True, slots=True)
class Played:
    """One trajectory: its task, its script and what came of it."""

    category: str
    script: Script
    result: RolloutResult


def run(folder: Path, *, trajectories: int, progress: Progress) -> DemoReport:
    """Play the demonstration in a data directory below `folder`.

    Raises:
        ServerUnreachable: The server did not come up.
        DataError: The sample world cannot be imported.
    """
    progress("building the sample database and its tasks")
    directory = DataDirectory(folder / "data")
    template = _import_world(folder, directory)
    before = _sha256(template)
    progress("starting the server")
    with ServerProcess(directory.root) as server:
        progress(f"{trajectories} trajectories at once")
        started = time.perf_counter()
        played, gathered, after = asyncio.run(_play(server.url, trajectories))
        elapsed_s = time.perf_counter() - started
    return report(
        played,
        gathered=gathered,
        after=after,
        elapsed_s=elapsed_s,
        template_bytes=template.stat().st_size,
        before=before,
        now=_sha256(template),
    )


def _import_world(folder: Path, directory: DataDirectory) -> Path:
    """The template's path, once database and tasks are in the catalogue."""
    directory.root.mkdir(parents=True)
    source = folder / f"{DATABASE}.sqlite"
    build_database(source)
    templates = TemplateStore(directory.store)
    with Catalogue(directory.root) as catalogue:
        database = import_database(DatabaseFile(DATABASE, source), catalogue, templates)
        catalogue.add_tasks([Task.from_record(record) for record in TASKS], source="demo")
    source.unlink()
    return templates.get(database.digest).path


class Gathering:
    """Lets trajectories wait for each other, and asks `measure` once while all of them are there.

    A trajectory that ends early counts as there: the others must not wait for it for ever.
    """

    def __init__(self, expected: int) -> None:
        self._missing = expected
        self._there: set[str] = set()
        self._complete = asyncio.Event()
        self._over = asyncio.Event()

    def count(self, trajectory_id: str) -> None:
        """The trajectory is there, or ended; further calls for it change nothing."""
        if trajectory_id not in self._there:
            self._there.add(trajectory_id)
            self._missing -= 1
        if self._missing <= 0:
            self._complete.set()

    async def wait(self, trajectory_id: str) -> None:
        self.count(trajectory_id)
        await self._over.wait()

    async def complete(self) -> None:
        await self._complete.wait()

    def dismiss(self) -> None:
        self._over.set()


async def _play(url: str, trajectories: int) -> tuple[list[Played], PoolStatus, PoolStatus]:
    """The trajectories, and the pool while all were live and after all had ended."""
    gathering = Gathering(trajectories)
    scripts: dict[str, Script] = {}
    rollouts: dict[str, int] = {}

    async def policy(turn: Turn) -> ExecuteSql | Submit:
        if turn.step_index == 0:
            rollout = rollouts.get(turn.task_id, 0)
            rollouts[turn.task_id] = rollout + 1
            scripts[turn.trajectory_id] = script(turn.task_id, rollout)
        action = scripts[turn.trajectory_id].actions[turn.step_index]
        if isinstance(action, Submit):
            await gathering.wait(turn.trajectory_id)
        return action

    async with AsyncClient(url) as client:

        async def measure() -> PoolStatus:
            await gathering.complete()
            try:
                return await client.pool()
            finally:
                gathering.dismiss()

        measuring = asyncio.create_task(measure())
        results = await run_rollouts(
            client,
            list(islice(_task_ids(), trajectories)),
            policy,
            concurrency=trajectories,
            on_result=lambda result: gathering.count(result.trajectory_id),
            run_id="demo",
            limits=Limits(sql_cpu_s=RUNAWAY_CPU_S),
        )
        gathered = await measuring
        after = await client.pool()
    categories = {record["instance_id"]: str(record["category"]) for record in TASKS}
    played = [
        Played(categories[result.task_id], scripts.get(result.trajectory_id) or script(result.task_id, 0), result)
        for result in results
    ]
    return played, gathered, after


def _task_ids() -> Iterator[str]:
    """The tasks, round after round."""
    while True:
        for record in TASKS:
            yield record["instance_id"]


def report(
    played: Sequence[Played],
    *,
    gathered: PoolStatus,
    after: PoolStatus,
    elapsed_s: float,
    template_bytes: int,
    before: str,
    now: str,
) -> DemoReport:
    """What was shown, and what should not have been."""
    surprises = [surprise for each in played for surprise in differences(each)]
    if before != now:
        surprises.append(f"the template's bytes have changed: sha256 {before} before, {now} after")
    if gathered.live != len(played):
        surprises.append(f"{gathered.live} of {len(played)} trajectories were live at once")
    if after.live:
        surprises.append(f"{after.live} trajectories are still live after all have ended")
    steps = [
        (step.outcome, seconds * 1e3)
        for each in played
        for step, seconds in zip(each.result.steps, each.result.step_s, strict=True)
    ]
    stopped = [ms for outcome, ms in steps if outcome is Outcome.TIMEOUT]
    submitted = [ms for outcome, ms in steps if outcome is Outcome.SUBMITTED]
    executed = [ms for outcome, ms in steps if outcome not in NOT_STATEMENTS]
    engine = [step.elapsed_ms for each in played for step in each.result.steps if step.outcome not in NOT_STATEMENTS]
    return DemoReport(
        trajectories=len(played),
        tasks=len({each.result.task_id for each in played}),
        live_at_once=gathered.live,
        steps=len(steps),
        elapsed_s=round(elapsed_s, 2),
        steps_per_s=round(len(steps) / elapsed_s, 1),
        categories=_lines(played, lambda each: each.category),
        scripts=_lines(played, lambda each: each.script.kind),
        execute_ms_p50=percentile(executed, 50),
        execute_ms_p99=percentile(executed, 99),
        engine_ms_p50=percentile(engine, 50),
        stopped_ms_p50=percentile(stopped, 50),
        submit_ms_p50=percentile(submitted, 50),
        submit_ms_p99=percentile(submitted, 99),
        replicas_served=after.served,
        disk_bytes=gathered.disk_bytes,
        copies_bytes=template_bytes * len(played),
        template_bytes=template_bytes,
        template_sha256_before=before,
        template_sha256_after=now,
        surprises=surprises,
    )


def differences(played: Played) -> Iterator[str]:
    """Where a trajectory went otherwise than its script must."""
    result, expected = played.result, played.script.expected
    name = f"{result.task_id} ({played.script.kind}, {result.trajectory_id})"
    if result.error is not None:
        yield f"{name}: {type(result.error).__name__}: {result.error}"
        return
    if result.unclosed is not None:
        yield f"{name}: it could not be ended: {result.unclosed}"
    outcomes = tuple(step.outcome for step in result.steps)
    if outcomes != expected.outcomes:
        yield f"{name}: outcomes {', '.join(outcomes)}, not {', '.join(expected.outcomes)}"
    reward = 1.0 if expected.success else 0.0
    if result.reward != reward:
        yield f"{name}: reward {result.reward}, not {reward}"


def _lines(played: Sequence[Played], name: Callable[[Played], str]) -> list[Line]:
    lines: list[Line] = []
    for each in sorted({name(one) for one in played}):
        group = [one for one in played if name(one) == each]
        lines.append(
            Line(
                name=each,
                trajectories=len(group),
                succeeded=sum(one.result.reward == 1.0 for one in group),
                expected=sum(one.script.expected.success for one in group),
                steps=sum(len(one.result.steps) for one in group),
            )
        )
    return lines


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The smallest value that at least `percent` of them do not exceed (nearest rank); None of nothing."""
    if not values:
        return None
    return round(sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)], 1)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
