"""A task's record is judged as the record it was made from: the form that `bird_env.tasks` gives changes no verdict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bird_env.tasks import Task
from bird_server.scoring.conformance import read_cases, run_cases
from bird_server.scoring.job import ScoringJob
from bird_server.scoring.pool import ScorerPool

CASES = Path(__file__).parents[2] / "../shared/conformance/cases.jsonl"


@pytest.mark.skipif(not CASES.exists(), reason="the conformance cases are not beside the checkout")
async def test_cases_whose_record_takes_another_form_keep_their_official_verdict(tmp_path: Path) -> None:
    cases = read_cases(CASES, tmp_path)
    given = [(case, Task.from_record(case.job.record).record) for case in cases]
    changed = [
        replace(case, job=replace(case.job, record=record)) for case, record in given if record != case.job.record
    ]
    assert len(cases) > len(changed) > 0
    async with ScorerPool() as pool:
        assert await run_cases(changed, pool) == []


FORMS: dict[str, list[dict[str, Any]]] = {
    "absent, null and empty": [{}, {"clean_up_sql": None}, {"clean_up_sql": []}, {"clean_up_sql": ""}],
    "a text and a list": [{"issue_sql": "SELECT 9"}, {"issue_sql": ["SELECT 9"]}],
    "nothing that counts": [{"issue_sql": None}, {"issue_sql": {"sql": "SELECT 1"}}, {"issue_sql": 7}],
    "two statements in one text": [{"sol_sql": "SELECT 1; SELECT 2"}, {"sol_sql": ["SELECT 1; SELECT 2"]}],
}


@pytest.mark.parametrize("forms", FORMS.values(), ids=FORMS)
async def test_forms_that_the_evaluator_takes_for_the_same_have_the_same_verdict(
    tmp_path: Path, forms: list[dict[str, Any]]
) -> None:
    database = tmp_path / "x.sqlite"
    database.touch()
    base = {"instance_id": "a", "db_id": "x", "preprocess_sql": [], "sol_sql": ["SELECT 1"]}
    verdicts: list[Any] = []
    async with ScorerPool(children=1) as pool:
        for form in forms:
            raw = {**base, **form}
            for record in (raw, Task.from_record(raw).record):
                verdicts.append((await pool.score(ScoringJob(record, ["SELECT 1"], database))).verdict)
    assert verdicts == verdicts[:1] * len(verdicts)
