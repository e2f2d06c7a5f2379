"""The life of a trajectory, over the routes that its clients use."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from bird_env.errors import LedgerFault
from bird_env.models import CreatedTrajectory, Page, RecordedStep, StepResult, Trajectory
from bird_world import GOLD, SELECT_1, World, problem, serving

# ---- create ----


async def test_a_trajectory_of_a_task_begins_with_what_its_policy_needs(world: World) -> None:
    made = await world.create(task_id="read_1", run_id="r", group_id="g", seed=7, metadata={"k": [1, {"x": None}]})
    trajectory = CreatedTrajectory.model_validate(made)
    assert (trajectory.status, trajectory.epoch, trajectory.next_step_index) == ("live", 0, 0)
    assert (trajectory.run_id, trajectory.group_id, trajectory.seed) == ("r", "g", 7)
    assert trajectory.metadata == {"k": [1, {"x": None}]}
    assert trajectory.template_sha256 == world.template.digest
    first = trajectory.observation
    assert first.issue == "I want the names of big ones, I get the small ones."
    assert first.issue_sql == ["SELECT a FROM t WHERE b < 15"]
    assert "CREATE TABLE t(" in first.schema_text
    assert [message.role for message in first.messages] == ["system", "user"]
    assert first.prompt_template == "plain@1"
    assert GOLD not in json.dumps(made)


async def test_gold_and_tests_are_nowhere_a_policy_looks(world: World) -> None:
    texts = [json.dumps(await world.create("a", task_id="write_1"))]
    texts.append(json.dumps(await world.submit(["UPDATE t SET b = 0"], "a")))
    for path in ("/v1/tasks", "/v1/tasks/write_1", "/v1/trajectories/a", "/v1/trajectories/a/steps", "/v1/databases"):
        texts.append((await world.http.get(path)).text)
    texts.append((await world.post("/v1/scores", {"task_id": "write_1", "sql": ["UPDATE t SET b = 0"]})).text)
    for text in texts:
        assert "SECRET-OF-THE-TEST" not in text
        assert "b * 2" not in text
        assert "test_case(" not in text


async def test_preprocess_sql_has_run_and_stands_committed(world: World) -> None:
    await world.create("a", task_id="write_1")
    assert (await world.sql("SELECT x FROM log", "a"))["observation"]["rows"] == [["made first"]]
    await world.create("b", database="shop", preprocess_sql="CREATE TABLE own AS SELECT 5 AS five")
    step = await world.sql("SELECT five FROM own", "b")
    assert step["observation"]["rows"] == [[5]]
    assert step["observation"]["in_transaction"] is False


async def test_a_task_whose_preprocess_fails_is_offered_as_it_will_be_scored_and_the_failure_is_told(
    world: World,
) -> None:
    made = await world.create(task_id="bad_preprocess")
    error = made["observation"]["preprocess_error"]
    assert error["statement_index"] == 1
    assert "nowhere" in error["message"]
    assert (await world.sql("SELECT count(*) FROM ok"))["observation"]["rows"] == [[0]]
    again = await world.post("/v1/trajectories/t1/reset", {"epoch": 0})
    assert again.json()["observation"]["preprocess_error"] == error


async def test_a_preprocess_of_ones_own_that_fails_is_refused_and_names_the_statement(world: World) -> None:
    statements = ["CREATE TABLE ok(x)", "BEGIN; INSERT INTO nowhere VALUES (1)"]
    body = {"trajectory_id": "a", "database": "shop", "preprocess_sql": statements}
    response = await world.post("/v1/trajectories", body)
    refused = problem(response, 422, "preprocess_failed")
    assert refused["statement_index"] == 1
    assert "nowhere" in refused["detail"]
    assert refused["retryable"] is False
    assert world.state.engine.statistics().live == 0
    assert world.state.trajectories.admission.taken == 0
    problem(await world.http.get("/v1/trajectories/a"), 404, "unknown_trajectory")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 422, "invalid_request"),
        ({"task_id": "read_1", "database": "shop"}, 422, "invalid_request"),
        ({"task_id": "read_1", "preprocess_sql": []}, 422, "invalid_request"),
        ({"task_id": "none"}, 404, "unknown_task"),
        ({"database": "none"}, 404, "unknown_database"),
        ({"database": "shop", "prompt": "none"}, 422, "invalid_request"),
        ({"database": "shop", "limits": {"rows": -1}}, 422, "invalid_request"),
        ({"database": "shop", "wat": 1}, 422, "invalid_request"),
        ({"database": "shop", "trajectory_id": "a/b"}, 422, "invalid_request"),
        ({"database": "shop", "trajectory_id": ""}, 422, "invalid_request"),
        ({"database": "shop", "seed": 2**63}, 422, "invalid_request"),
        ({"database": "shop", "metadata": {"x": float("inf")}}, 422, "invalid_request"),
        ({"database": "shop", "metadata": {"x": "y" * 70_000}}, 422, "invalid_request"),
    ],
)
async def test_a_create_that_makes_no_sense_is_refused_and_leaves_nothing(
    world: World, body: dict[str, Any], status: int, code: str
) -> None:
    problem(await world.post("/v1/trajectories", body), status, code)
    assert world.state.engine.statistics().live == 0
    assert world.state.trajectories.admission.taken == 0


async def test_the_same_create_again_is_answered_again(world: World) -> None:
    first = await world.create(task_id="read_1")
    await world.sql("SELECT 1")
    again = await world.post("/v1/trajectories", {"task_id": "read_1", "trajectory_id": "t1"})
    assert again.status_code == 201
    assert again.headers["idempotent-replayed"] == "true"
    assert again.json()["observation"] == first["observation"]
    assert world.state.engine.statistics().live == 1


async def test_two_creates_at_once_under_one_id_make_one(world: World) -> None:
    body = {"database": "shop", "trajectory_id": "twin"}
    responses = await asyncio.gather(*(world.post("/v1/trajectories", body) for _ in range(6)))
    assert {response.status_code for response in responses} == {201}
    assert sum("idempotent-replayed" in response.headers for response in responses) == 5
    assert world.state.engine.statistics().live == 1


async def test_an_id_with_another_request_is_taken(world: World) -> None:
    await world.create()
    response = await world.post("/v1/trajectories", {"trajectory_id": "t1", "database": "shop", "seed": 1})
    problem(response, 409, "trajectory_exists")


async def test_a_spent_id_stays_spent(world: World) -> None:
    await world.create()
    await world.http.delete("/v1/trajectories/t1")
    body = problem(
        await world.post("/v1/trajectories", {"trajectory_id": "t1", "database": "shop"}), 410, "trajectory_gone"
    )
    assert body["end_reason"] == "deleted"


async def test_without_an_id_the_server_makes_one(world: World) -> None:
    made = [await world.post("/v1/trajectories", {"database": "shop"}) for _ in range(3)]
    ids = {response.json()["trajectory_id"] for response in made}
    assert {response.headers["location"] for response in made} == {f"/v1/trajectories/{each}" for each in ids}
    assert len(ids) == 3


async def test_limits_are_the_smaller_of_asked_and_own(world: World) -> None:
    made = await world.create(limits={"rows": 2, "sql_cpu_s": 1e9, "max_steps": 3})
    assert (made["limits"]["rows"], made["limits"]["sql_cpu_s"], made["max_steps"]) == (2, 30.0, 3)
    step = await world.sql("SELECT id FROM t")
    assert step["observation"]["rows"] == [[1], [2]]
    assert step["observation"]["rows_seen"] == 3
    assert step["observation"]["truncated"] is True


# ---- steps ----


async def test_state_persists_across_steps_as_in_the_shell(world: World) -> None:
    await world.create()
    assert (await world.sql("INSERT INTO t(a) VALUES ('new')"))["observation"]["rowcount"] == 1
    assert (await world.sql("CREATE TEMP TABLE scratch AS SELECT 1 AS one"))["outcome"] == "ok"
    assert (await world.sql("SELECT one FROM scratch"))["observation"]["rows"] == [[1]]
    begun = await world.sql("BEGIN; UPDATE t SET b = 0")
    assert begun["observation"]["in_transaction"] is True
    assert "A transaction is open." in begun["observation"]["text"]
    assert (await world.sql("ROLLBACK"))["observation"]["in_transaction"] is False
    assert (await world.sql("SELECT sum(b), count(*) FROM t"))["observation"]["rows"] == [[30, 4]]
    assert (await world.sql("VACUUM"))["outcome"] == "ok"
    assert (await world.sql("PRAGMA foreign_keys = ON; PRAGMA foreign_keys"))["observation"]["rows"] == [[1]]


async def test_trajectories_do_not_see_each_other(world: World) -> None:
    await world.create("a")
    await world.create("b")
    await world.sql("DELETE FROM t; CREATE TEMP TABLE mine(x)", "a")
    assert (await world.sql("SELECT count(*) FROM t", "b"))["observation"]["rows"] == [[3]]
    assert (await world.sql("SELECT * FROM mine", "b"))["outcome"] == "sql_error"


async def test_failing_sql_is_an_observation(world: World) -> None:
    await world.create()
    step = await world.sql("INSERT INTO t(a) VALUES ('kept'); SELECT nope FROM t; SELECT 1")
    result = StepResult.model_validate(step)
    assert result.outcome == "sql_error"
    assert result.reward is None
    assert result.terminated is False
    observation = result.observation
    assert observation.error is not None
    assert observation.error.message == "no such column: nope"
    assert observation.error.statement_index == 1
    assert [each.outcome for each in observation.statements] == ["ok", "sql_error"]
    assert "no such column: nope" in observation.text
    assert (await world.sql("SELECT count(*) FROM t"))["observation"]["rows"] == [[4]]


async def test_a_runaway_is_a_timeout_and_the_trajectory_lives_on(world: World) -> None:
    await world.create(limits={"sql_cpu_s": 0.1})
    step = await world.sql("WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r) SELECT count(*) FROM r")
    assert step["outcome"] == "timeout"
    assert "Timeout after 0.1s" in step["observation"]["text"]
    assert (await world.sql("SELECT 1"))["observation"]["rows"] == [[1]]


async def test_a_step_sent_again_is_not_run_again(world: World) -> None:
    await world.create()
    action = {"type": "execute_sql", "sql": "INSERT INTO t(a) VALUES ('once')"}
    first = await world.send("t1", 0, 0, action)
    again = await world.send("t1", 0, 0, action, policy_version=3)
    assert again.text == first.text
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    world.steps["t1"] = (0, 1)
    assert (await world.sql("SELECT count(*) FROM t"))["observation"]["rows"] == [[4]]


async def test_a_duplicate_of_a_step_in_flight_waits_for_the_same_result(world: World) -> None:
    await world.create()
    action = {"type": "execute_sql", "sql": "INSERT INTO t(a) VALUES ('once')"}
    responses = await asyncio.gather(*(world.send("t1", 0, 0, action) for _ in range(5)))
    assert len({response.text for response in responses}) == 1
    assert sum("idempotent-replayed" in response.headers for response in responses) == 4
    world.steps["t1"] = (0, 1)
    assert (await world.sql("SELECT count(*) FROM t"))["observation"]["rows"] == [[4]]


async def test_a_step_key_with_another_action_is_refused(world: World) -> None:
    await world.create()
    await world.sql("SELECT 1")
    response = await world.send("t1", 0, 0, {"type": "execute_sql", "sql": "SELECT 2"})
    problem(response, 422, "key_reused")


async def test_a_gap_is_refused_and_says_what_is_expected(world: World) -> None:
    await world.create()
    body = problem(await world.send("t1", 0, 2, SELECT_1), 409, "step_conflict")
    assert body["expected_step_index"] == 0
    assert body["trajectory_id"] == "t1"


async def test_another_epoch_is_stale(world: World) -> None:
    await world.create()
    body = problem(await world.send("t1", 1, 0, SELECT_1), 409, "stale_epoch")
    assert body["epoch"] == 0


async def test_a_failed_commit_is_ours_and_the_retry_executes_nothing_twice(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create()
    ledger = world.state.ledger
    commit = ledger._commit_together  # pyright: ignore[reportPrivateUsage]

    async def full(group: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(ledger, "_commit_together", full)
    action = {"type": "execute_sql", "sql": "INSERT INTO t(a) VALUES ('once')"}
    for _ in range(3):
        body = problem(await world.send("t1", 0, 0, action), 503, "ledger_fault")
        assert body["retryable"] is True
    monkeypatch.setattr(ledger, "_commit_together", commit)
    response = await world.send("t1", 0, 0, action)
    assert response.status_code == 200
    world.steps["t1"] = (0, 1)
    assert (await world.sql("SELECT count(*) FROM t"))["observation"]["rows"] == [[4]]


async def test_a_place_is_given_back_whatever_the_ledger_says(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.create()

    async def full(group: Any) -> None:
        raise LedgerFault("no")

    monkeypatch.setattr(world.state.ledger, "_commit_together", full)
    problem(await world.http.delete("/v1/trajectories/t1"), 503, "ledger_fault")
    assert world.state.trajectories.admission.taken == 0
    assert world.state.engine.statistics().live == 0


async def test_a_client_that_hangs_up_cancels_nothing(world: World) -> None:
    await world.create()
    action = {"type": "execute_sql", "sql": "INSERT INTO t(a) VALUES ('once')"}
    sent = asyncio.create_task(world.send("t1", 0, 0, action))
    while not len(world.state.operations):
        await asyncio.get_running_loop().run_in_executor(None, lambda: None)
    sent.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sent
    again = await world.send("t1", 0, 0, action)
    assert again.status_code == 200
    assert again.headers["idempotent-replayed"] == "true"
    world.steps["t1"] = (0, 1)
    assert (await world.sql("SELECT count(*) FROM t"))["observation"]["rows"] == [[4]]


async def test_the_last_step_within_max_steps_is_truncated_and_later_ones_are_over(world: World) -> None:
    await world.create(limits={"max_steps": 2})
    assert (await world.sql("SELECT 1"))["truncated"] is False
    last = await world.sql("SELECT 2")
    assert (last["truncated"], last["truncation_reason"], last["terminated"]) == (True, "max_steps", False)
    assert last["reward"] is None
    body = problem(await world.send("t1", 0, 2, {"type": "execute_sql", "sql": "SELECT 3"}), 409, "episode_over")
    assert body["end_reason"] == "max_steps"
    assert world.state.engine.statistics().live == 0
    replay = await world.send("t1", 0, 1, {"type": "execute_sql", "sql": "SELECT 2"})
    assert json.loads(replay.text) == last


async def test_steps_are_kept_and_listed_by_pages(world: World) -> None:
    await world.create()
    for number in range(5):
        await world.sql(f"SELECT {number}, '\ud83d', x'00ff', 9e999, 9007199254740993, char(0)")
    seen: list[RecordedStep] = []
    token: str | None = None
    while True:
        params = {"limit": "2", **({"page_token": token} if token else {})}
        response = await world.http.get("/v1/trajectories/t1/steps", params=params)
        page = Page[RecordedStep].model_validate(json.loads(response.text))
        seen += page.items
        token = page.next_page_token
        if token is None:
            break
    assert [step.step_index for step in seen] == [0, 1, 2, 3, 4]
    assert seen[0].action.type == "execute_sql"


# ---- values ----


async def test_every_value_of_sqlite_reads_back_exactly(world: World) -> None:
    await world.create()
    step = await world.sql(
        "SELECT NULL, 1, 9007199254740993, -9223372036854775808, 1.5, 9e999, -9e999, 'plain é',"
        " CAST(x'5472E96E' AS TEXT), 'a' || char(0) || 'b', x'00ff', x'', 1e300, 0.1 + 0.2"
    )
    (row,) = StepResult.model_validate(step).observation.values()
    assert row == (
        None,
        1,
        9007199254740993,
        -9223372036854775808,
        1.5,
        float("inf"),
        float("-inf"),
        "plain é",
        b"Tr\xe9n".decode("utf-8", "surrogateescape"),
        "a\0b",
        b"\x00\xff",
        b"",
        1e300,
        0.1 + 0.2,
    )


async def test_a_lone_surrogate_is_an_sql_error_not_a_fault(world: World) -> None:
    await world.create()
    step = await world.sql("SELECT '\ud83d'")
    assert step["outcome"] == "sql_error"
    assert step["observation"]["statements"][0]["sql"] == "SELECT '\ud83d'"


async def test_the_result_hash_tells_results_apart_and_equal_ones_not(world: World) -> None:
    await world.create(limits={"rows": 1})
    hashes = [
        (await world.sql(sql))["observation"]["result_hash"]
        for sql in (
            "SELECT id FROM t ORDER BY id",
            "SELECT id FROM t ORDER BY id",
            "SELECT id FROM t WHERE id < 3 ORDER BY id",  # differs in a row that is not returned
            "SELECT CAST(id AS TEXT) AS id FROM t ORDER BY id",
            "SELECT nope",
        )
    ]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 4


# ---- submit and score ----


async def test_a_right_submission_is_rewarded_and_ends_the_episode(world: World) -> None:
    await world.create(task_id="read_1")
    await world.sql("DELETE FROM t")  # the score is of a fresh database, not of what the policy left
    done = await world.submit([GOLD])
    assert (done["terminated"], done["truncated"], done["reward"], done["outcome"]) == (True, False, 1.0, "submitted")
    assert done["reward_parts"]["official"] == 1.0
    assert done["score"]["official"]["status"] == "success"
    assert done["score"]["versions"]["scorer_sqlite"]
    assert world.state.engine.statistics().live == 0
    assert world.state.trajectories.admission.taken == 0
    problem(await world.send("t1", 0, 2, SELECT_1), 409, "episode_over")
    score = await world.post("/v1/trajectories/t1/score", {})
    assert score.json() == done["score"]
    view = Trajectory.model_validate((await world.http.get("/v1/trajectories/t1")).json())
    assert (view.status, view.end_reason, view.reward, view.next_step_index) == ("ended", "submitted", 1.0, 2)


async def test_a_wrong_submission_has_reward_zero(world: World) -> None:
    await world.create(task_id="write_1")
    done = await world.submit(["UPDATE t SET b = b + 2"])
    assert (done["reward"], done["score"]["status"], done["terminated"]) == (0.0, "failed", True)
    assert done["score"]["official"]["failed_tests"] == ["test_1"]


async def test_what_cannot_be_scored_has_no_reward(world: World) -> None:
    await world.create("a", task_id="no_gold")
    await world.create("b", database="shop")
    for name in ("a", "b"):
        done = await world.submit(["SELECT 1"], name)
        assert (done["reward"], done["score"]["status"], done["terminated"]) == (None, "unscorable", True)


async def test_a_fault_of_the_scorer_is_never_a_reward(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from bird_server.scoring.pool import ScorerError

    await world.create(task_id="read_1")
    pool = world.state.scores._pool  # pyright: ignore[reportPrivateUsage]

    async def broken(job: Any) -> Any:
        raise ScorerError("fork: out of memory")

    monkeypatch.setattr(pool, "score", broken)
    body = problem(await world.send("t1", 0, 0, {"type": "submit", "sql": [GOLD]}), 503, "scorer_fault")
    assert body["retryable"] is True
    monkeypatch.undo()
    assert (await world.submit([GOLD]))["reward"] == 1.0


async def test_a_score_on_the_side_changes_nothing(world: World) -> None:
    await world.create(task_id="read_1")
    problem(await world.post("/v1/trajectories/t1/score", {}), 409, "nothing_submitted")
    right = await world.post("/v1/trajectories/t1/score", {"sql": [GOLD]})
    wrong = await world.post("/v1/trajectories/t1/score", {"sql": "SELECT 1"})
    assert (right.json()["reward"], wrong.json()["reward"]) == (1.0, 0.0)
    problem(await world.post("/v1/trajectories/t1/score"), 409, "nothing_submitted")
    assert (await world.sql("SELECT 1"))["outcome"] == "ok"


async def test_scores_without_a_trajectory(world: World) -> None:
    for task_id, sql, expected in (
        ("read_1", [GOLD], ("success", 1.0)),
        ("read_1", "SELECT a FROM t WHERE b < 15", ("failed", 0.0)),
        ("write_1", ["UPDATE t SET b = b * 2"], ("success", 1.0)),
        ("no_gold", ["SELECT 1"], ("unscorable", None)),
    ):
        body = (await world.post("/v1/scores", {"task_id": task_id, "sql": sql})).json()
        assert (body["status"], body["reward"]) == expected
    problem(await world.post("/v1/scores", {"task_id": "none", "sql": []}), 404, "unknown_task")


# ---- reset ----


async def test_a_reset_is_a_fresh_database_in_a_new_epoch(world: World) -> None:
    await world.create(task_id="write_1")
    await world.sql("DELETE FROM t; CREATE TEMP TABLE x(y); PRAGMA foreign_keys = ON; INSERT INTO log VALUES (1)")
    response = await world.post("/v1/trajectories/t1/reset", {"epoch": 0})
    assert response.status_code == 200
    body = response.json()
    assert (body["epoch"], body["next_step_index"], body["status"]) == (1, 0, "live")
    assert body["observation"]["issue_sql"]
    problem(await world.send("t1", 0, 1, SELECT_1), 409, "stale_epoch")
    world.steps["t1"] = (1, 0)
    step = await world.sql("SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM log)")
    assert step["observation"]["rows"] == [[3, 1]]
    assert (await world.sql("SELECT * FROM x"))["outcome"] == "sql_error"
    assert (await world.sql("PRAGMA foreign_keys"))["observation"]["rows"] == [[0]]
    assert world.state.engine.statistics().live == 1


async def test_a_reset_sent_again_resets_once(world: World) -> None:
    await world.create()
    await world.post("/v1/trajectories/t1/reset", {"epoch": 0})
    again = await world.post("/v1/trajectories/t1/reset", {"epoch": 0})
    assert (again.json()["epoch"], again.headers["idempotent-replayed"]) == (1, "true")
    problem(await world.post("/v1/trajectories/t1/reset", {"epoch": 5}), 409, "stale_epoch")
    assert (await world.post("/v1/trajectories/t1/reset")).json()["epoch"] == 2


async def test_a_finished_episode_can_be_reset_and_its_reward_is_forgotten(world: World) -> None:
    await world.create(task_id="read_1")
    await world.submit([GOLD])
    response = await world.post("/v1/trajectories/t1/reset", {"epoch": 0})
    assert (response.json()["status"], response.json()["epoch"], response.json()["reward"]) == ("live", 1, None)
    world.steps["t1"] = (1, 0)
    assert (await world.sql("SELECT count(*) FROM t"))["observation"]["rows"] == [[3]]
    problem(await world.post("/v1/trajectories/t1/score", {}), 409, "nothing_submitted")
    assert (await world.submit(["SELECT 1"]))["reward"] == 0.0


async def test_a_reset_of_what_is_gone_is_refused(world: World) -> None:
    problem(await world.post("/v1/trajectories/none/reset"), 404, "unknown_trajectory")
    await world.create()
    await world.http.delete("/v1/trajectories/t1")
    problem(await world.post("/v1/trajectories/t1/reset"), 410, "trajectory_gone")


# ---- ends ----


async def test_delete_is_always_204(world: World) -> None:
    await world.create()
    for _ in range(2):
        assert (await world.http.delete("/v1/trajectories/t1")).status_code == 204
    assert (await world.http.delete("/v1/trajectories/never-was")).status_code == 204
    body = problem(await world.send("t1", 0, 0, SELECT_1), 410, "trajectory_gone")
    assert body["end_reason"] == "deleted"
    assert world.state.engine.statistics().live == 0


async def test_a_delete_beside_a_step_lets_the_step_finish(world: World) -> None:
    await world.create()
    step, deleted = await asyncio.gather(world.send("t1", 0, 0, SELECT_1), world.http.delete("/v1/trajectories/t1"))
    assert step.status_code in {200, 410}
    assert deleted.status_code == 204
    assert world.state.engine.statistics().live == 0


async def test_a_run_is_ended_as_one(world: World) -> None:
    for name, run in (("a", "r1"), ("b", "r1"), ("c", "r2")):
        await world.create(name, run_id=run)
    assert (await world.http.delete("/v1/trajectories", params={"run_id": "r1"})).json() == {"run_id": "r1", "ended": 2}
    listed = (await world.http.get("/v1/trajectories", params={"status": "live"})).json()["items"]
    assert [each["trajectory_id"] for each in listed] == ["c"]
    problem(await world.http.delete("/v1/trajectories"), 422, "invalid_request")


async def test_a_full_pool_says_when_to_come_back_and_a_freed_place_is_free_at_once(world: World) -> None:
    for number in range(4):
        await world.create(f"t{number}")
    response = await world.post("/v1/trajectories", {"database": "shop"})
    body = problem(response, 503, "overloaded")
    assert body["retryable"] is True
    assert int(response.headers["retry-after"]) >= 1
    await world.http.delete("/v1/trajectories/t0")
    await world.create("t9")


async def test_prefer_wait_waits_for_a_place(world: World) -> None:
    for number in range(4):
        await world.create(f"t{number}")
    waiting = asyncio.create_task(world.post("/v1/trajectories", {"database": "shop"}, Prefer="wait=60"))
    while not world.state.trajectories.admission.queued:
        await asyncio.get_running_loop().run_in_executor(None, lambda: None)
    assert (await world.http.get("/v1/pool")).json()["queued"] == 1
    await world.http.delete("/v1/trajectories/t2")
    assert (await waiting).status_code == 201


# ---- leases ----


async def test_a_lease_that_nobody_renews_ends_the_trajectory(world: World) -> None:
    await world.create("idle", lease_s=30)
    await world.create("busy", lease_s=30)
    world.clock.advance(20)
    await world.sql("SELECT 1", "busy")
    world.clock.advance(15)
    assert await world.state.trajectories.reap() == 1
    body = problem(await world.send("idle", 0, 0, SELECT_1), 410, "trajectory_gone")
    assert body["end_reason"] == "lease_expired"
    assert (await world.sql("SELECT 1", "busy"))["outcome"] == "ok"
    assert world.state.engine.statistics().live == 1


@pytest.mark.parametrize("call", ["get", "heartbeat", "step"])
async def test_any_call_renews(world: World, call: str) -> None:
    await world.create(lease_s=30)
    for _ in range(3):
        world.clock.advance(25)
        if call == "get":
            await world.http.get("/v1/trajectories/t1")
        elif call == "heartbeat":
            beat = (await world.post("/v1/trajectories/t1/heartbeat")).json()
            assert beat["lease_expires_at"] > world.clock.now().isoformat().replace("+00:00", "Z")
        else:
            await world.sql("SELECT 1")
        assert await world.state.trajectories.reap() == 0


async def test_a_lifetime_ends_what_is_always_busy(world: World) -> None:
    await world.create()
    for _ in range(12):
        world.clock.advance(50)
        await world.http.get("/v1/trajectories/t1")
    assert await world.state.trajectories.reap() == 1
    body = problem(await world.post("/v1/trajectories/t1/heartbeat"), 410, "trajectory_gone")
    assert body["end_reason"] == "lifetime"


async def test_a_lease_cannot_be_longer_than_a_lifetime(world: World) -> None:
    made = await world.create(lease_s=1e12)
    assert made["lease_s"] == 600.0
    assert made["lease_expires_at"] <= made["lifetime_expires_at"]


# ---- the service about itself ----


async def test_the_pool_counts_what_there_is(world: World) -> None:
    await world.create("a", run_id="r")
    await world.create("b", run_id="r")
    await world.sql("UPDATE t SET b = 1", "a")
    await world.post("/v1/trajectories/b/reset")
    pool = (await world.http.get("/v1/pool")).json()
    assert (pool["live"], pool["capacity"], pool["served"], pool["runs"]) == (2, 4, 3, {"r": 2})
    assert pool["disk_bytes"] > 0
    (template,) = pool["templates"]
    assert (template["database"], template["live"], template["served"]) == ("shop", 2, 3)


async def test_library(world: World) -> None:
    (database,) = (await world.http.get("/v1/databases")).json()["items"]
    assert (database["database"], database["sha256"]) == ("shop", world.template.digest)
    schema = (await world.http.get("/v1/databases/shop/schema", params={"count": "true"})).json()
    tables = {table["name"]: table for table in schema["tables"]}
    assert tables["t"]["rows"] == 3
    assert tables["big"]["kind"] == "view"
    assert tables["child"]["foreign_keys"][0]["references_table"] == "t"
    assert "CREATE VIEW big" in schema["text"]
    problem(await world.http.get("/v1/databases/none/schema"), 404, "unknown_database")
    first = (await world.http.get("/v1/tasks", params={"limit": 3})).json()
    rest = (await world.http.get("/v1/tasks", params={"limit": 3, "page_token": first["next_page_token"]})).json()
    ids = [task["task_id"] for task in first["items"] + rest["items"]]
    assert ids == ["bad_preprocess", "no_gold", "read_1", "write_1"]
    assert rest["next_page_token"] is None
    one = (await world.http.get("/v1/tasks/no_gold")).json()
    assert one["scorable"] is False
    problem(await world.http.get("/v1/tasks/none"), 404, "unknown_task")
    names = [tool["function"]["name"] for tool in (await world.http.get("/v1/tools")).json()["items"]]
    assert names == ["execute_sql", "submit_solution"]


async def test_health_and_version(world: World) -> None:
    assert (await world.http.get("/healthz")).json()["status"] == "ok"
    assert (await world.http.get("/readyz")).json()["status"] == "ok"
    version = (await world.http.get("/version")).json()
    assert version["engine_sqlite"] != version["scorer_sqlite"] or version["engine_sqlite"]
    world.state.close()
    assert (await world.http.get("/readyz")).status_code == 503
    problem(await world.post("/v1/trajectories", {"database": "shop"}), 503, "shutting_down")


# ---- idempotency keys and tokens ----


async def test_an_idempotency_key_gives_the_stored_reply(world: World) -> None:
    body = {"task_id": "read_1", "sql": [GOLD]}
    first = await world.post("/v1/scores", body, Idempotency_Key="k1")
    again = await world.post("/v1/scores", body, Idempotency_Key="k1")
    assert again.text == first.text
    assert again.headers["idempotent-replayed"] == "true"
    problem(await world.post("/v1/scores", {**body, "sql": []}, Idempotency_Key="k1"), 422, "key_reused")
    made = [await world.post("/v1/trajectories", {"database": "shop"}, Idempotency_Key="k2") for _ in range(2)]
    assert made[0].json()["trajectory_id"] == made[1].json()["trajectory_id"]


async def test_scopes_are_held(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", run_token="run-secret", admin_token="admin-secret") as world:
        problem(await world.http.get("/v1/pool"), 401, "unauthorized")
        problem(await world.http.get("/v1/pool", headers={"Authorization": "Bearer no"}), 401, "unauthorized")
        assert (await world.http.get("/healthz")).status_code == 200
        run = {"Authorization": "Bearer run-secret"}
        made = await world.post("/v1/trajectories", {"task_id": "read_1", "trajectory_id": "a"}, **run)
        assert made.status_code == 201
        body = problem(await world.post("/v1/scores", {"task_id": "read_1", "sql": []}, **run), 403, "forbidden")
        assert body["required_scope"] == "admin"
        problem(await world.post("/v1/trajectories/a/score", {"sql": []}, **run), 403, "forbidden")
        admin = {"Authorization": "Bearer admin-secret"}
        scored = await world.post("/v1/trajectories/a/score", {"sql": [GOLD]}, **admin)
        assert scored.json()["reward"] == 1.0


async def test_a_restart_ends_what_was_live_and_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as world:
        await world.create()
        await world.sql("SELECT 1")
    async with serving(tmp_path / "data") as world:
        body = problem(await world.send("t1", 0, 1, SELECT_1), 410, "trajectory_gone")
        assert body["end_reason"] == "server_restarted"
        replay = await world.send("t1", 0, 0, SELECT_1)
        assert replay.status_code == 200
        assert (await world.http.get("/v1/trajectories/t1")).json()["next_step_index"] == 1


# ---- found by attacking it ----


async def test_a_keyed_create_whose_reply_could_not_be_kept_is_not_made_twice(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = world.state.ledger._commit_together  # pyright: ignore[reportPrivateUsage]

    async def no_replies(group: Any) -> None:
        if any("key" in write.values for waiting in group for write in waiting.writes):
            raise OSError("no space left on device")
        await commit(group)

    monkeypatch.setattr(world.state.ledger, "_commit_together", no_replies)
    problem(await world.post("/v1/trajectories", {"database": "shop"}, Idempotency_Key="k"), 503, "ledger_fault")
    monkeypatch.undo()
    assert (await world.post("/v1/trajectories", {"database": "shop"}, Idempotency_Key="k")).status_code == 201
    assert world.state.engine.statistics().live == 1


async def test_ending_a_run_or_a_trajectory_ends_creates_that_still_wait(world: World) -> None:
    for number in range(4):
        await world.create(f"t{number}", run_id="other")
    body = {"database": "shop", "run_id": "r"}
    waiting = [
        asyncio.create_task(world.post("/v1/trajectories", {**body, "trajectory_id": name}, Prefer="wait=60"))
        for name in ("w1", "w2")
    ]
    while world.state.trajectories.admission.queued < 2:
        await asyncio.get_running_loop().run_in_executor(None, lambda: None)
    assert (await world.http.delete("/v1/trajectories/w1")).status_code == 204
    problem(await waiting[0], 410, "trajectory_gone")
    assert (await world.http.delete("/v1/trajectories", params={"run_id": "r"})).json()["ended"] == 1
    problem(await waiting[1], 410, "trajectory_gone")
    await world.http.delete("/v1/trajectories/t0")
    assert world.state.trajectories.admission.taken == 3


@pytest.mark.parametrize("version", [2**53 - 1, -(2**53 - 1), "step-9", "9", "1e400", "nan", None])
async def test_a_policy_version_reads_back(world: World, version: Any) -> None:
    await world.create()
    assert (await world.send("t1", 0, 0, SELECT_1, policy_version=version)).status_code == 200
    (step,) = (await world.http.get("/v1/trajectories/t1/steps")).json()["items"]
    assert step["policy_version"] == version


@pytest.mark.parametrize("version", [2**53, 10**400, "x" * 201, 1.5, [1]])
async def test_a_policy_version_that_is_none_is_refused(world: World, version: Any) -> None:
    await world.create()
    problem(await world.send("t1", 0, 0, SELECT_1, policy_version=version), 422, "invalid_request")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1;" * 20_000,
        "SELECT " + ", ".join(f'1 AS "{"n" * 5_000}{number}"' for number in range(100)),
        "SELECT '" + "x" * 900_000 + "' AS y",
        "SELECT " + "(" * 50 + "nope" + "x" * 100_000 + ")" * 50,
        "SELECT replace(hex(zeroblob(400000)), '0', char(7))",
    ],
    ids=["statements", "names", "echo", "error", "escapes"],
)
async def test_a_reply_is_bounded_whatever_the_policy_writes(world: World, sql: str) -> None:
    await world.create()
    epoch, index = world.steps["t1"]
    response = await world.send("t1", epoch, index, {"type": "execute_sql", "sql": sql})
    assert response.status_code == 200
    assert len(response.content) < 2_500_000
    step = StepResult.model_validate(json.loads(response.text))
    assert len(step.observation.text) <= 8_000
    assert len(step.observation.statements) <= 101
    assert step.observation.statements_seen == (20_000 if sql.startswith("SELECT 1;") else 1)
