"""The official flow, through the real pool: every rule case of ours, and the public conformance cases."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from bird_server.scoring.conformance import build_database
from bird_server.scoring.job import Mode, ScoringJob, ScoringResult
from bird_server.scoring.pool import ScorerPool
from bird_snapshots.template import TemplateStore
from server.scoring.rule_cases import ALL, SCRIPT, RuleCase
from server.scoring.rule_cases_tests import TESTS

CASES = [*ALL, *TESTS]


async def _score(cases: list[RuleCase], folder: Path, *, published: bool) -> list[ScoringResult]:
    script = folder / "lib.sql"
    script.write_text(SCRIPT, encoding="utf-8")
    database = build_database(script, folder / "lib.sqlite")
    if published:
        database = TemplateStore(folder / "store").publish(database).path
    jobs = [ScoringJob(case.record, case.pred_sqls, database, cast("Mode", case.mode), 60.0) for case in cases]
    async with ScorerPool() as pool:
        return await asyncio.gather(*map(pool.score, jobs))


@pytest.mark.parametrize("published", [False, True])
async def test_every_rule_case_has_the_verdict_that_the_specification_gives(tmp_path: Path, published: bool) -> None:
    results = await _score(CASES, tmp_path, published=published)
    wrong = [
        f"{case.name}: expected {case.expected}, got {result.verdict.as_dict()}, {result.detail}"
        for case, result in zip(CASES, results, strict=True)
        if result.verdict.as_dict() != case.expected
    ]
    assert not wrong, "\n".join(wrong)


def test_the_names_of_the_rule_cases_are_their_own() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names)) > 100
