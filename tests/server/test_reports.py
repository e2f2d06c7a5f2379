"""Public failure reports of this kind of work, each sent as a step: what its reporter would expect happens here.

The inputs come from the shared material when it is there; `EXPECTED` says what each must do, `REAL` spells out the
inputs that the reports only describe. `docs/behaviour.md` names where ours differs on purpose.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from bird_env.models import Outcome, StepResult
from bird_env.tasks import Task
from bird_server.catalogue import Catalogue
from bird_world import World, add_database, serving

SCRIPT = """
CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, b INTEGER);
WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 5001)
  INSERT INTO t SELECT n, 'row' || n, n FROM c WHERE n <> 900;
CREATE TABLE p(id INTEGER PRIMARY KEY);
CREATE TABLE ch(p INTEGER REFERENCES p(id) DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE q(v INTEGER CHECK (v >= 0));
CREATE TABLE z(x);
CREATE TABLE big(x);
"""

Check = Callable[[StepResult], bool]


def outcome(*allowed: Outcome) -> Check:
    return lambda step: step.outcome in allowed


def says(words: str, *, kind: Outcome = Outcome.SQL_ERROR) -> Check:
    return lambda step: step.outcome == kind and words in step.observation.text


def rows(*expected: tuple[Any, ...]) -> Check:
    return lambda step: step.outcome == Outcome.OK and step.observation.values() == list(expected)


OK, ERROR, TIMEOUT, LIMIT = Outcome.OK, Outcome.SQL_ERROR, Outcome.TIMEOUT, Outcome.LIMIT

#: By report: one check an input. Prose around SQL is an SQL error as it stands; `REAL` has what it means.
EXPECTED: dict[str, list[Check]] = {
    "B002-trailing-junk": [
        rows((1,)),
        rows((1,)),
        lambda step: step.outcome == ERROR and "fence" in step.observation.text,
        says("Nothing to execute.", kind=OK),
        says("Nothing to execute.", kind=OK),
        says("Nothing to execute.", kind=OK),
    ],
    "B003-scorer-blind-open-tx": [lambda step: step.outcome == OK and step.observation.in_transaction],
    "B004-implicit-begin": [lambda step: step.outcome == OK and step.observation.in_transaction],
    "B005-runaway-cte": [outcome(TIMEOUT)],
    "B006-cross-join": [outcome(TIMEOUT)],
    "B016-utf8-decode": [lambda step: step.outcome == OK and step.observation.rows_seen == 5001],
    "B021-half-read-cursor": [lambda step: (step.observation.rows_seen, step.observation.truncated) == (5000, True)],
    "B022-trigger-split": [lambda step: step.outcome == OK and len(step.observation.statements) == 1],
    "B023-semicolon-literal": [lambda step: step.observation.rowcount == 1],
    "B025-returning-unread": [lambda step: (step.observation.rows_seen, step.observation.rowcount) == (5000, 5000)],
    "B031-interrupt-dml": [says("syntax error")],
    "B055-version-drift": [says("concat")],
    "B057-bigint-json": [rows((9007199254740993,))],
    "B058-int-overflow": [says("integer overflow")],
    "B059-inf-json": [rows((float("inf"), float("-inf")))],
    "B062-or-rollback": [
        lambda step: (
            step.outcome == ERROR
            and step.observation.transaction_rolled_back
            and not step.observation.in_transaction
            and len(step.observation.statements) == 3
        )
    ],
    "B063-savepoint-tx": [lambda step: step.outcome == OK and step.observation.in_transaction],
    "B064-commit-fails-open": [
        lambda step: (
            step.outcome == ERROR and "FOREIGN KEY" in step.observation.text and step.observation.in_transaction
        )
    ],
    "B065-with-dml": [lambda step: step.observation.rowcount == 5000 and not step.observation.statements[0].readonly],
    "B069-placeholder": [lambda step: step.outcome == ERROR and "?" in step.observation.text],
    "B087-date-now": [outcome(OK)],
    "B092-ignore-check": [outcome(OK)],
    "B099-limits-drift": [says("variable number")],
    "B101-random-order": [lambda step: step.observation.rows_seen == 1],
    "B112-trigger-recursion": [outcome(OK)],
    "B137-heap-limit": [lambda step: step.outcome == OK and step.observation.rows_seen == 0],
    "B140-quota-raise": [lambda step: step.outcome == OK and step.observation.rows_seen == 0],
    "B142-printf-bomb": [outcome(OK, LIMIT)],
    "B143-string-doubling": [outcome(LIMIT)],
    "B146-uninterruptible-like": [outcome(ERROR, LIMIT)],
    "B153-temp-shadow": [outcome(OK)],
    "B155-schema-corrupt": [says("may not be modified")],
    "B156-pragma-quoted": [outcome(OK)] * 3,
    "B157-load-extension": [says("not authorized")],
    "B158-fts3-tokenizer": [outcome(ERROR)],
    "B171-like-too-complex": [says("too complex")],
}

UNION = " UNION ALL ".join(["SELECT 1"] * 501)

#: What the reports describe in words, written out: (setting up, statement, check).
REAL: dict[str, tuple[list[str], str, Check]] = {
    "B016-utf8-decode": (
        ["INSERT INTO t VALUES (900, CAST(x'5472E96E' AS TEXT), 1)"],
        "SELECT a, b FROM t WHERE id >= 900 LIMIT 2",
        rows((b"Tr\xe9n".decode("utf-8", "surrogateescape"), 1), ("row901", 901)),
    ),
    "B031-interrupt-dml": (
        ["BEGIN; UPDATE t SET b = 1 WHERE id = 1"],
        "UPDATE t SET b = (SELECT count(*) FROM t x, t y, t z)",
        lambda step: (
            step.outcome == TIMEOUT and step.observation.transaction_rolled_back and not step.observation.in_transaction
        ),
    ),
    "B070-union-500": ([], UNION, says("too many terms")),
    "B070-values": ([], f"SELECT count(*) FROM (VALUES {','.join(['(1)'] * 5000)})", rows((5000,))),
    "B072-expr-depth": ([], "SELECT 1 WHERE " + " OR ".join(["1=2"] * 1100), outcome(OK, ERROR)),
    "B074-disk-fill": (
        [],
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 1000)"
        " INSERT INTO z SELECT randomblob(100000) FROM c",
        outcome(Outcome.QUOTA),
    ),
    "B100-tz-localtime": ([], "SELECT datetime('2020-06-01 20:00:00', 'localtime')", outcome(OK)),
    "B137-another": (["PRAGMA hard_heap_limit=200000"], "SELECT count(*) FROM t", rows((5000,))),
    "B138-cache-size": (
        ["PRAGMA cache_size=-4000000"],
        "PRAGMA cache_size",
        lambda step: step.observation.rows != [[-4000000]],
    ),
    "B141-trigger-amplify": (
        [
            "CREATE TRIGGER g AFTER INSERT ON t BEGIN INSERT INTO t(a) SELECT 'x' FROM t; END",
            "PRAGMA recursive_triggers=ON",
        ],
        "INSERT INTO t(a) VALUES('q')",
        outcome(TIMEOUT, Outcome.QUOTA, ERROR),
    ),
    "B144-group-concat-bomb": (
        [],
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT 900)"
        " SELECT length(group_concat(hex(zeroblob(400000)))) FROM r",
        outcome(LIMIT),
    ),
    "B146-instr": (
        [],
        "SELECT instr(replace(hex(zeroblob(200000)),'0','a'), replace(hex(zeroblob(40000)),'0','a') || 'b')",
        outcome(OK, TIMEOUT),
    ),
    "B152-vacuum-into": ([], "VACUUM INTO 'out1.db'", says("not authorized")),
    "B152-attach": ([], "ATTACH 'file:out3.db?mode=rwc' AS z", says("not authorized")),
    "B166-oracle-readable": ([], "ATTACH '/etc/passwd' AS z", says("not authorized")),
    "B169-wide-table": (
        [],
        "SELECT " + ",".join("1" for _ in range(2000)),
        lambda step: (
            step.outcome == OK and len(step.observation.columns) == 2000 and len(step.observation.text) <= 8000
        ),
    ),
}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with serving(tmp_path / "data", sql_cpu_s=0.3, wal_mb=20) as opened:
        template = add_database(opened.root, "reports", SCRIPT)
        opened.template = template
        await opened.create("bystander", database="reports")
        yield opened
        step = await opened.sql("SELECT count(*), sum(b), max(a) FROM t", "bystander")
        assert step["observation"]["rows"] == [[5000, 12506601, "row999"]]
        step = await opened.sql("INSERT INTO q VALUES (-1)", "bystander")
        assert step["outcome"] == "sql_error", "a PRAGMA of another trajectory reached this one"
        assert hashlib.sha256(template.path.read_bytes()).hexdigest() == template.digest
        assert not list(opened.root.glob("**/out*.db"))


def sql_reports(shared: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (shared / "cases" / "reports.jsonl").read_text("utf-8").splitlines():
        report = json.loads(line)
        if report["kind"] == "sql":
            found[report["id"]] = [report["input"]] if isinstance(report["input"], str) else report["input"]
    return found


async def test_every_reported_input_is_an_observation(world: World, shared: Path) -> None:
    reports = sql_reports(shared)
    assert len(reports) > 40
    wrong: list[str] = []
    for name, inputs in reports.items():
        checks = EXPECTED.get(name, [outcome(OK, ERROR)] * len(inputs))
        await world.create(name, database="reports")
        for number, (text, check) in enumerate(zip(inputs, checks, strict=True)):
            step = StepResult.model_validate(await world.sql(text, name))
            if not check(step):
                wrong.append(f"{name}[{number}] {step.outcome}: {step.observation.text[:300]}")
            await world.sql("ROLLBACK", name)
            alive = await world.sql("SELECT 41 + 1", name)
            assert alive["observation"]["rows"] == [[42]], f"{name} left its trajectory unusable"
        await world.http.delete(f"/v1/trajectories/{name}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", list(REAL))
async def test_what_the_reports_describe(world: World, name: str) -> None:
    first, text, check = REAL[name]
    await world.create("a", database="reports")
    for statement in first:
        assert (await world.sql(statement, "a"))["outcome"] == "ok"
    step = StepResult.model_validate(await world.sql(text, "a"))
    assert check(step), f"{step.outcome}: {step.observation.text[:500]}"
    assert (await world.sql("SELECT 41 + 1", "a"))["observation"]["rows"] == [[42]]


async def test_an_empty_gold_is_never_matched_by_an_empty_answer(world: World) -> None:
    """B013: official rules count an empty result as a failure."""
    record = {
        "instance_id": "empty",
        "selected_database": "reports",
        "query": "?",
        "preprocess_sql": [],
        "sol_sql": ["SELECT * FROM t WHERE a = 'nope'"],
        "test_cases": [],
    }
    with Catalogue(world.root) as catalogue:
        catalogue.add_tasks([Task.from_record(record)], source="test")
    body = (await world.post("/v1/scores", {"task_id": "empty", "sql": ["SELECT 1 WHERE 0"]})).json()
    assert body["reward"] == 0.0
