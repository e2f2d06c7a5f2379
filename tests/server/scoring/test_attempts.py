"""A fault is tried again, a verdict never."""

from __future__ import annotations

from pathlib import Path

import pytest

from bird_env.errors import ScorerFault
from bird_server.scoring.attempts import ATTEMPTS, score_patiently
from bird_server.scoring.job import ScoringJob, ScoringResult, failure_verdict

JOB = ScoringJob({}, [], Path("none"))


class Scorer:
    def __init__(self, faults: int) -> None:
        self.faults, self.calls = faults, 0

    async def score(self, job: ScoringJob) -> ScoringResult:
        self.calls += 1
        if self.calls <= self.faults:
            raise ScorerFault(f"fault {self.calls}")
        return ScoringResult(failure_verdict({}), 1.0, "completed")


@pytest.mark.parametrize("faults", range(ATTEMPTS))
async def test_the_first_verdict_counts_whatever_it_says(faults: int) -> None:
    scorer = Scorer(faults)
    assert (await score_patiently(scorer, JOB)).verdict.status == "failed"
    assert scorer.calls == faults + 1


async def test_a_fault_that_does_not_go_away_is_told() -> None:
    scorer = Scorer(ATTEMPTS)
    with pytest.raises(ScorerFault, match=f"fault {ATTEMPTS}"):
        await score_patiently(scorer, JOB)
    assert scorer.calls == ATTEMPTS


async def test_what_is_no_fault_of_the_machinery_is_not_tried_again() -> None:
    calls = 0

    class Broken:
        async def score(self, job: ScoringJob) -> ScoringResult:
            nonlocal calls
            calls += 1
            raise KeyError("a defect")

    with pytest.raises(KeyError):
        await score_patiently(Broken(), JOB)
    assert calls == 1
