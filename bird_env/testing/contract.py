"""The suite that every pair of client and server passes: the wire's promises, as a trainer meets them.

Derive from `ClientContract` in a test module and give it two pytest fixtures: `client` (a `Client`, or `blocking(app)`,
which is an `AsyncClient`) and `world` (what the server holds). Checks raise AssertionError themselves: the suite works
where asserts are stripped, too.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from bird_env.client import Client
from bird_env.errors import (
    BirdEnvError,
    EpisodeOver,
    InvalidRequest,
    KeyReused,
    NotFound,
    NothingSubmitted,
    PreprocessFailed,
    StaleEpoch,
    StepConflict,
    TrajectoryExists,
    TrajectoryGone,
    UnknownDatabase,
    UnknownTask,
    UnknownTrajectory,
)
from bird_env.models import (
    ExecuteSql,
    Limits,
    Outcome,
    ScoreStatus,
    StepRequest,
    TrajectoryStatus,
    TruncationReason,
)

E = TypeVar("E", bound=BirdEnvError)


@dataclass(frozen=True, slots=True)
class World:
    """What the server under test holds.

    Attributes:
        database: A database by name.
        task_id: A scorable task.
        right: A solution that passes.
        wrong: One that runs and does not pass.
    """

    database: str
    task_id: str
    right: list[str]
    wrong: list[str]


def check(held: bool, said: str) -> None:
    if not held:
        raise AssertionError(said)


@contextmanager
def raises(kind: type[E]) -> Generator[list[E]]:
    """The list holds the error once the block is over."""
    caught: list[E] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    else:
        raise AssertionError(f"{kind.__name__} was not raised")


class ClientContract:
    """See the module. Each test makes its own trajectories and ends them."""

    # The library

    def test_the_service_says_what_it_is(self, client: Client) -> None:
        check(client.health().status == "ok", "a service that answers is healthy")
        check(client.ready().status == "ok", "a service under test is ready")
        check(client.wait_until_ready(1.0).status == "ok", "waiting for a ready service ends")
        version = client.version()
        check(version.api == "v1" and bool(version.version), "the version names the API")

    def test_databases_have_a_schema(self, client: Client, world: World) -> None:
        names = [each.database for each in client.databases()]
        check(world.database in names, f"{world.database} is listed among {names}")
        schema = client.schema(world.database)
        check(bool(schema.tables) and "CREATE" in schema.text.upper(), "the schema lists tables and their statements")
        for unknown in ("no such database?", "ä", "%2F"):
            with raises(UnknownDatabase):
                client.schema(unknown)
        with raises(NotFound):
            client.schema("no/such/../database")

    def test_tasks_are_listed_page_by_page(self, client: Client, world: World) -> None:
        everything = [each.task_id for each in client.tasks()]
        by_ones = [each.task_id for each in client.tasks(limit=1)]
        check(everything == by_ones, "pages of one hold what one page holds")
        check(len(set(by_ones)) == len(by_ones) and world.task_id in by_ones, "each task once")
        task = client.task(world.task_id)
        check(task.database == world.database and task.scorable, "a task by its id")
        check(not any(word in repr(task) for word in world.right), "a task does not tell its solution")
        for unknown in ("no such task", "a/b", "..", "ä?x=1#y", "%2F"):
            with raises(UnknownTask):
                client.task(unknown)

    def test_tasks_are_filtered(self, client: Client, world: World) -> None:
        check(world.task_id in [each.task_id for each in client.tasks(database=world.database)], "by database")
        check(list(client.tasks(database="no & such=database")) == [], "a filter nothing fits gives nothing")

    def test_tools_are_function_schemas(self, client: Client) -> None:
        names = {each.function.name for each in client.tools()}
        check({"execute_sql", "submit_solution"} <= names, f"both tools, not {names}")

    # An episode

    def test_an_episode_in_the_order_of_gymnasium(self, client: Client, world: World) -> None:
        with client.trajectory(world.task_id) as trajectory:
            first, info = trajectory.reset()
            check(bool(first.text) and bool(first.messages), "the first observation is a text and chat messages")
            check(info["epoch"] == 0, "a trajectory nobody has stepped is not made anew")
            observation, reward, terminated, truncated, info = trajectory.step("SELECT 41 + 1 AS answer")
            check(observation.columns == ["answer"] and observation.values() == [(42,)], "the result, typed")
            check((reward, terminated, truncated) == (0.0, False, False), "a look costs nothing and ends nothing")
            check(info["outcome"] is Outcome.OK and info["step_index"] == 0, "step 0 went well")
            result = trajectory.submit(world.right)
            check(result.reward == 1.0 and result.terminated and result.outcome is Outcome.SUBMITTED, "right is 1.0")
            check(trajectory.over, "the episode is over")
            with raises(EpisodeOver):
                trajectory.execute("SELECT 1")
            score = trajectory.score()
            check(score.status is ScoreStatus.SUCCESS and score.reward == 1.0, "the score can be had again")

    def test_a_wrong_solution_is_zero(self, client: Client, world: World) -> None:
        with client.trajectory(world.task_id) as trajectory:
            result = trajectory.submit(world.wrong)
        check(result.reward == 0.0 and result.terminated, "wrong is 0.0")
        check(result.score is not None and result.score.status is ScoreStatus.FAILED, "and failed")

    def test_sql_that_fails_is_an_observation(self, client: Client, world: World) -> None:
        with client.trajectory(database=world.database) as trajectory:
            for sql in ("SELEKT 1", "SELECT * FROM no_such_table", "SELECT '\ud83d'"):
                result = trajectory.execute(sql)
                check(result.outcome is Outcome.SQL_ERROR and result.reward is None, f"{sql!r} fails as SQL")
                check(result.observation.error is not None and not result.terminated, "with a reason, and goes on")
            check(trajectory.execute("SELECT 1").outcome is Outcome.OK, "the trajectory is usable")

    def test_values_arrive_exactly(self, client: Client, world: World) -> None:
        sql = (
            "SELECT NULL, 1, 9007199254740993, -9223372036854775807 - 1, 0.5, 1e999, 'ä', x'00ff', CAST(x'ff' AS TEXT)"
        )
        with client.trajectory(database=world.database) as trajectory:
            row = trajectory.execute(sql).observation.values()[0]
        expected = (None, 1, 2**53 + 1, -(2**63), 0.5, float("inf"), "ä", b"\x00\xff", "\udcff")
        check(row == expected, f"{row} is what the database holds")

    def test_steps_run_out(self, client: Client, world: World) -> None:
        with client.trajectory(database=world.database, limits=Limits(max_steps=2)) as trajectory:
            check(not trajectory.execute("SELECT 1").truncated, "one of two")
            last = trajectory.execute("SELECT 2")
            check(last.truncated and last.truncation_reason is TruncationReason.MAX_STEPS, "two of two")
            check(last.observation.values() == [(2,)] and trajectory.over, "the last step is run")
            with raises(EpisodeOver):
                trajectory.execute("SELECT 3")

    # Privacy and reset

    def test_what_one_writes_no_other_sees(self, client: Client, world: World) -> None:
        with client.trajectory(database=world.database) as one, client.trajectory(database=world.database) as other:
            one.execute("CREATE TABLE canary(x); INSERT INTO canary VALUES (1)")
            check(one.execute("SELECT x FROM canary").observation.values() == [(1,)], "its own writes")
            check(other.execute("SELECT x FROM canary").outcome is Outcome.SQL_ERROR, "and nobody else's")

    def test_a_reset_begins_again(self, client: Client, world: World) -> None:
        with client.trajectory(database=world.database) as trajectory:
            trajectory.execute("CREATE TABLE canary(x)")
            observation, info = trajectory.reset()
            check(info["epoch"] == 1 and trajectory.next_step_index == 0, "a new epoch, from step 0")
            check(bool(observation.text), "with its first observation")
            check(trajectory.execute("SELECT * FROM canary").outcome is Outcome.SQL_ERROR, "nothing is left")
            with raises(StaleEpoch):
                client.step(trajectory.trajectory_id, _execute(0, 1, "SELECT 1"))
            again = client.reset_trajectory(trajectory.trajectory_id, epoch=0)
            check(again.epoch == 1, "a repeated reset is the same reset")

    def test_a_reset_after_the_end_of_an_episode(self, client: Client, world: World) -> None:
        with client.trajectory(world.task_id) as trajectory:
            trajectory.submit(world.wrong)
            trajectory.reset()
            check(not trajectory.over, "it goes on")
            check(trajectory.submit(world.right).reward == 1.0, "and can be won")

    def test_preprocess_sql_runs_first(self, client: Client, world: World) -> None:
        with client.trajectory(database=world.database, preprocess_sql=["CREATE TABLE note(x)"]) as trajectory:
            check(trajectory.execute("SELECT * FROM note").outcome is Outcome.OK, "its table is there")
        with raises(PreprocessFailed), client.trajectory(database=world.database, preprocess_sql="CREATE NONSENSE"):
            pass

    # Keys

    def test_a_step_runs_once(self, client: Client, world: World) -> None:
        with client.trajectory(database=world.database) as trajectory:
            trajectory.execute("CREATE TABLE tally(x)")
            request = _execute(0, 1, "INSERT INTO tally VALUES (1)")
            first = client.step(trajectory.trajectory_id, request)
            check(client.step(trajectory.trajectory_id, request) == first, "a repeat gets the stored reply")
            with raises(KeyReused):
                client.step(trajectory.trajectory_id, _execute(0, 1, "INSERT INTO tally VALUES (2)"))
            with raises(StepConflict) as caught:
                client.step(trajectory.trajectory_id, _execute(0, 7, "SELECT 1"))
            check(caught[0].fields.get("expected_step_index") == 2, "the conflict says which step is next")
            trajectory.refresh()
            check(trajectory.next_step_index == 2, "refresh goes on where the server stands")
            rows = trajectory.execute("SELECT count(*) FROM tally").observation.values()
            check(rows == [(1,)], f"one row, not {rows}")

    def test_a_create_makes_one_trajectory(self, client: Client, world: World) -> None:
        name = _id()
        made = client.create_trajectory(database=world.database, trajectory_id=name, seed=7)
        try:
            again = client.create_trajectory(database=world.database, trajectory_id=name, seed=7)
            check(again.trajectory_id == made.trajectory_id and again.created_at == made.created_at, "the same one")
            with raises(TrajectoryExists):
                client.create_trajectory(database=world.database, trajectory_id=name, seed=8)
            with raises(TrajectoryExists), client.trajectory(database=world.database, trajectory_id=name, seed=9):
                pass
            check(client.get_trajectory(name).status is TrajectoryStatus.LIVE, "a refused create ends nothing")
        finally:
            client.delete_trajectory(name)
        with raises(TrajectoryGone):
            client.create_trajectory(database=world.database, trajectory_id=name, seed=7)

    def test_threads_of_one_handle_take_turns(self, client: Client, world: World) -> None:
        with client.trajectory(database=world.database) as trajectory:
            trajectory.execute("CREATE TABLE tally(x)")
            failed: list[BirdEnvError] = []

            def insert() -> None:
                try:
                    trajectory.execute("INSERT INTO tally VALUES (1)")
                except BirdEnvError as error:
                    failed.append(error)

            threads = [threading.Thread(target=insert) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            check(failed == [], f"no step is in another's way: {failed}")
            check(trajectory.execute("SELECT count(*) FROM tally").observation.values() == [(8,)], "each step once")

    # Identity, records, the end

    def test_a_trajectory_is_known_by_run_and_group(self, client: Client, world: World) -> None:
        run = _id()
        metadata = {"nested": {"empty": None, "text": "\ud83d"}, "list": [1, None]}
        with client.trajectory(database=world.database, run_id=run, group_id=f"{run}-g", metadata=metadata) as one:
            client.create_trajectory(database=world.database, run_id=run)
            found = list(client.list_trajectories(run_id=run, status="live", limit=1))
            check(len(found) == 2, f"two of the run, not {len(found)}")
            grouped = list(client.list_trajectories(group_id=f"{run}-g"))
            check([each.trajectory_id for each in grouped] == [one.trajectory_id], "one of the group")
            check(grouped[0].metadata == metadata, "with what the client noted")
            check(client.end_run(run).ended == 2, "the run ends both")
            check(list(client.list_trajectories(run_id=run, status="live")) == [], "none is live")
            with raises(TrajectoryGone):
                one.execute("SELECT 1")
        check(client.end_run(run).ended == 0, "an ended run ends nothing")

    def test_steps_are_recorded(self, client: Client, world: World) -> None:
        with client.trajectory(database=world.database) as trajectory:
            trajectory.execute("SELECT 1", policy_version="p1")
            trajectory.step(ExecuteSql(sql="SELECT 2"), policy_version=2)
            name = trajectory.trajectory_id
        steps = list(client.steps(name, limit=1))
        check([each.step_index for each in steps] == [0, 1], "every step, readable after the end")
        check([each.policy_version for each in steps] == ["p1", 2], "with the policy's version")
        check(steps[1].action == ExecuteSql(sql="SELECT 2"), "with its action")

    def test_another_handle_goes_on(self, client: Client, world: World) -> None:
        with client.trajectory(database=world.database) as trajectory:
            trajectory.execute("CREATE TABLE canary(x)")
            with client.attach(trajectory.trajectory_id) as same:
                check(same.next_step_index == 1, "from where it stands")
                check(same.execute("SELECT * FROM canary").outcome is Outcome.OK, "with what was done")
        with raises(UnknownTrajectory):
            client.attach(_id()).open()

    def test_an_end_is_harmless(self, client: Client, world: World) -> None:
        client.delete_trajectory(_id())
        trajectory = client.trajectory(database=world.database)
        trajectory.close()
        trajectory.open()
        check(trajectory.heartbeat().lease_expires_at is not None, "a live trajectory has a lease")
        trajectory.close()
        trajectory.close()
        for call in (trajectory.heartbeat, trajectory.reset):
            with raises(TrajectoryGone):
                call()
        check(client.get_trajectory(trajectory.trajectory_id).status is TrajectoryStatus.ENDED, "it stays readable")
        with raises(UnknownTrajectory):
            client.get_trajectory(_id())

    def test_the_pool_counts(self, client: Client, world: World) -> None:
        before = client.pool()
        with client.trajectory(database=world.database):
            check(client.pool().live == before.live + 1, "one more is live")
        after = client.pool()
        check(after.live == before.live and after.served > before.served, "and its place is free again")

    # Scores

    def test_a_solution_is_scored_without_a_trajectory(self, client: Client, world: World) -> None:
        check(client.score(world.task_id, world.right).reward == 1.0, "right")
        check(client.score(world.task_id, world.wrong).reward == 0.0, "wrong")
        with raises(UnknownTask):
            client.score(_id(), "SELECT 1")

    def test_nothing_submitted_has_no_score(self, client: Client, world: World) -> None:
        with client.trajectory(world.task_id) as trajectory, raises(NothingSubmitted):
            trajectory.score()

    # Refusals

    def test_requests_that_do_not_fit(self, client: Client, world: World) -> None:
        with raises(UnknownTask), client.trajectory(_id()):
            pass
        with raises(UnknownDatabase), client.trajectory(database=_id()):
            pass
        with raises(InvalidRequest), client.trajectory():
            pass
        with raises(InvalidRequest), client.trajectory(world.task_id, database=world.database):
            pass
        with raises(UnknownTrajectory):
            client.step(_id(), _execute(0, 0, "SELECT 1"))


def _execute(epoch: int, step_index: int, sql: str) -> StepRequest:
    return StepRequest(epoch=epoch, step_index=step_index, action=ExecuteSql(sql=sql))


def _id() -> str:
    return uuid.uuid4().hex
