"""Scoring that is tried again: a fault of the machinery says nothing of a solution, and mostly passes."""

from __future__ import annotations

from typing import Protocol

from bird_env.errors import ScorerFault
from bird_server.scoring.job import ScoringJob, ScoringResult

#: Tries of one scoring, after which its fault is told.
ATTEMPTS = 3


class Scorer(Protocol):
    """What scores: `ScorerPool`, or a stand-in."""

    async def score(self, job: ScoringJob) -> ScoringResult: ...


async def score_patiently(scorer: Scorer, job: ScoringJob) -> ScoringResult:
    """The verdict on a job, once a try succeeds.

    Raises:
        ScorerFault: No try did; the last one's.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return await scorer.score(job)
        except ScorerFault:
            continue
    return await scorer.score(job)
