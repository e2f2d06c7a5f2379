"""Cases with known verdicts: reading, comparing, and the public set itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bird_env.errors import DataError, ScorerFault
from bird_server.scoring.attempts import ATTEMPTS
from bird_server.scoring.conformance import Case, build_database, read_cases, run_cases
from bird_server.scoring.job import ScoringJob, ScoringResult, Verdict
from bird_server.scoring.pool import ScorerPool
from server.scoring.support import SHARED_LOOP

EXPECTED = {"status": "success", "passed": 1, "total": 0, "failed_tests": [], "execution_error": False}
VERDICT = Verdict("success", 1, 0, [], False, False, False, False)


def write_cases(folder: Path, *cases: dict[str, Any]) -> Path:
    (folder / "shop.sql").write_text("CREATE TABLE t(a); INSERT INTO t VALUES (1);", encoding="utf-8")
    base = {"database": "shop.sql", "task": {"db_id": "shop"}, "pred_sqls": ["SELECT 1"], "expected": EXPECTED}
    lines = [json.dumps({"id": f"c{number}", **base, **case}) for number, case in enumerate(cases)]
    path = folder / "cases.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


class Scripted:
    """Gives one verdict, after as many faults as were asked for."""

    def __init__(self, verdict: Verdict = VERDICT, faults: int = 0) -> None:
        self.verdict, self.faults, self.jobs = verdict, faults, list[ScoringJob]()

    async def score(self, job: ScoringJob) -> ScoringResult:
        self.jobs.append(job)
        if len(self.jobs) <= self.faults:
            raise ScorerFault("no room")
        return ScoringResult(self.verdict, 1.0, "completed")


def test_extra_keys_reach_the_job(tmp_path: Path) -> None:
    path = write_cases(
        tmp_path,
        {"mode": "gold", "wrapper_timeout_s": 3},
        {"omit_pred_sqls": True},
        {"pred_sqls": None, "issue_sql_passed_unexpectedly": None},
    )
    gold, omitted, null = read_cases(path, tmp_path)
    assert (gold.job.mode, gold.job.limit_s) == ("gold", 3.0)
    assert (omitted.job.pred_sqls, omitted.job.mode, omitted.job.limit_s) == (None, "pred", 180.0)
    assert null.job.pred_sqls == []
    assert null.expected["issue_sql_passed_unexpectedly"] is None
    assert "issue_sql_passed_unexpectedly" not in gold.expected
    assert gold.job.database == omitted.job.database


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ({"database": "nowhere.sql"}, "cannot be built"),
        ({"database": None}, "wrong type"),
        ({"task": 5}, "wrong type"),
    ],
)
def test_a_case_that_cannot_be_used_is_named(tmp_path: Path, case: dict[str, Any], reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        read_cases(write_cases(tmp_path, case), tmp_path)


@pytest.mark.parametrize("text", ["", "[1]", '{"id": "a"}', "{"])
def test_a_file_that_cannot_be_used_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError):
        read_cases(path, tmp_path)


def test_sql_that_fails_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "bad.sql").write_text("CREATE nonsense", encoding="utf-8")
    with pytest.raises(DataError, match="syntax error"):
        build_database(tmp_path / "bad.sql", tmp_path / "bad.sqlite")


async def test_each_field_that_differs_is_a_mismatch(tmp_path: Path) -> None:
    cases = read_cases(write_cases(tmp_path, {"why": "because"}), tmp_path)
    told: list[str] = []
    assert await run_cases(cases, Scripted(), on_case=lambda case: told.append(case.id)) == []
    assert told == ["c0"]
    wrong = Scripted(Verdict("failed", 1, 0, ["test_1"], False, False, True, False))
    found = await run_cases(cases, wrong)
    assert [mismatch.field for mismatch in found] == ["status", "failed_tests"]
    assert str(found[0]) == 'c0 status: expected "success", got "failed"  (because)'


async def test_types_count(tmp_path: Path) -> None:
    cases = read_cases(write_cases(tmp_path, {"expected": {"passed": True}}), tmp_path)
    assert [mismatch.field for mismatch in await run_cases(cases, Scripted())] == ["passed"]


@pytest.mark.parametrize(("faults", "fields"), [(ATTEMPTS - 1, []), (ATTEMPTS, ["scorer"])])
async def test_a_fault_of_the_scorer_is_tried_again(tmp_path: Path, faults: int, fields: list[str]) -> None:
    cases = read_cases(write_cases(tmp_path, {}), tmp_path)
    assert [mismatch.field for mismatch in await run_cases(cases, Scripted(faults=faults))] == fields


@SHARED_LOOP
async def test_the_public_cases_have_their_official_verdicts(shared: Path, tmp_path: Path, pool: ScorerPool) -> None:
    cases: list[Case] = read_cases(shared / "conformance" / "cases.jsonl", tmp_path)
    assert len(cases) > 100
    assert [str(mismatch) for mismatch in await run_cases(cases, pool)] == []


@SHARED_LOOP
async def test_real_golds_pass_and_real_issues_fail(shared: Path, pool: ScorerPool) -> None:
    lines = (shared / "data/tasks/six_gym_sqlite_90.jsonl").read_text(encoding="utf-8").splitlines()[:12]
    for record in map(json.loads, lines):
        name = record["db_id"]
        database = shared / "data/databases" / name / f"{name}_template.sqlite"
        gold = await pool.score(ScoringJob(record, None, database, "gold"))
        issue = await pool.score(ScoringJob(record, record["issue_sql"], database))
        assert (gold.verdict.status, issue.verdict.status) == ("success", "failed"), record["instance_id"]
