"""The report of a scored file: the counts and lines of the official one, then what it lacks.

Official: the counts of errors, the accuracy in percent with two places (successes by number of results), a time stamp,
and one line an instance. Added: successes by category, Wilson's interval, what has no prediction or cannot be scored,
and the versions that judged. A task that cannot be scored is in no count and in no percentage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bird_server.scoring.job import Verdict

#: The benchmark's own categories, in its order; others follow by name.
CATEGORIES = ("Query", "Management", "Efficiency", "Personalization")
UNCATEGORIZED = "(none)"

#: The normal distribution's 97.5 % point: intervals are of 95 %.
_Z = 1.959963984540054
_RULE = "-" * 80
#: Ids that the summary names; the report names them all.
_NAMED = 10


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's score interval of a share, 95 %, each bound from 0 to 1; (0, 1) without trials.

    E. B. Wilson, Probable inference, the law of succession, and statistical inference, JASA 22 (1927).
    """
    if trials == 0:
        return 0.0, 1.0
    share = successes / trials
    scale = 1 + _Z**2 / trials
    centre = (share + _Z**2 / (2 * trials)) / scale
    half = _Z * math.sqrt(share * (1 - share) / trials + _Z**2 / (4 * trials**2)) / scale
    # Rounding could push a bound past what the formula gives exactly at a share of 0 or 1.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == trials else min(1.0, centre + half)
    return low, high


@dataclass(frozen=True, slots=True)
class Scored:
    """One scored task."""

    instance_id: str
    category: str | None
    verdict: Verdict
    missing: bool = False

    @property
    def success(self) -> bool:
        return self.verdict.status == "success"


@dataclass(frozen=True, slots=True)
class Unscored:
    """A task that was not scored, and why; never a failure of the solution."""

    instance_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Tally:
    """Successes of some tasks, with Wilson's interval."""

    success: int
    total: int

    @property
    def percent(self) -> float:
        return 100 * self.success / self.total if self.total else 0.0

    @property
    def interval_percent(self) -> tuple[float, float]:
        low, high = wilson(self.success, self.total)
        return 100 * low, 100 * high

    def as_dict(self) -> dict[str, Any]:
        return {
            "success": self.success,
            "total": self.total,
            "accuracy_percent": round(self.percent, 2),
            "wilson_95_percent": [round(bound, 2) for bound in self.interval_percent],
        }


@dataclass(slots=True)
class Report:
    """What a run came to.

    Args:
        scored: In the order of the task file, as `unscored` is.
        problems: What was wrong with the input, a sentence each.
        dropped: Records of the task file that are no tasks.
        reused: Verdicts that an earlier run had given.
    """

    scored: Sequence[Scored]
    unscored: Sequence[Unscored] = ()
    problems: Sequence[str] = ()
    dropped: int = 0
    reused: int = 0
    mode: str = "pred"
    limit_s: float = 180.0
    versions: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def tally(self) -> Tally:
        return _tally(self.scored)

    @property
    def missing(self) -> list[str]:
        """Ids without a prediction: counted as failed."""
        return [each.instance_id for each in self.scored if each.missing]

    def categories(self) -> dict[str, Tally]:
        """A tally by category, the benchmark's four first."""
        groups: dict[str, list[Scored]] = {}
        for each in self.scored:
            groups.setdefault(each.category or UNCATEGORIZED, []).append(each)
        known = [name for name in CATEGORIES if name in groups]
        return {name: _tally(groups[name]) for name in [*known, *sorted(set(groups) - set(known))]}

    def errors(self) -> dict[str, int]:
        """How many verdicts have each flag."""
        verdicts = [each.verdict for each in self.scored]
        return {
            "execution_error": sum(verdict.execution_error for verdict in verdicts),
            "timeout_error": sum(verdict.timeout_error for verdict in verdicts),
            "assertion_error": sum(verdict.assertion_error for verdict in verdicts),
            "issue_sql_passed_unexpectedly": sum(bool(verdict.issue_sql_passed_unexpectedly) for verdict in verdicts),
        }

    def as_dict(self) -> dict[str, Any]:
        """The summary for programs."""
        return {
            **self.tally.as_dict(),
            "categories": {name: tally.as_dict() for name, tally in self.categories().items()},
            "errors": self.errors(),
            "missing": self.missing,
            "unscorable": [{"instance_id": each.instance_id, "reason": each.reason} for each in self.unscored],
            "problems": list(self.problems),
            "dropped": self.dropped,
            "reused": self.reused,
            "mode": self.mode,
            "limit_s": self.limit_s,
            "versions": self.versions,
        }

    def text(self, now: datetime) -> str:
        """The report for people, in the style of the official one."""
        parts = [self._head(now), self._instances(), self._statistics(), self._categories()]
        parts += [self._listed("Without a prediction, counted as failed", self.missing)]
        parts += [
            self._listed("Not scored, in no count", [f"{each.instance_id}: {each.reason}" for each in self.unscored])
        ]
        parts += [self._listed("Problems of the input", list(self.problems))]
        parts += ["Versions: " + ", ".join(f"{name} {value}" for name, value in self.versions.items())]
        return f"\n{_RULE}\n".join(part for part in parts if part) + "\n"

    def summary(self) -> str:
        """The table and what is missing, for a terminal."""
        lines = [self._categories()]
        if self.missing:
            named = self.missing[:_NAMED] + (["…"] if len(self.missing) > _NAMED else [])
            lines.append(f"Without a prediction, counted as failed: {len(self.missing)} ({', '.join(named)})")
        if self.unscored:
            lines.append(f"Not scored, in no count: {len(self.unscored)}")
        return "\n".join(lines)

    def _head(self, now: datetime) -> str:
        errors = self.errors()
        low, high = self.tally.interval_percent
        failed = self.tally.total - self.tally.success
        return "\n".join(
            [
                f"BIRD-CRITIC Result Statistics (SQLite, mode {self.mode})",
                f"Number of Instances: {self.tally.total}",
                f"Number of Execution Errors: {errors['execution_error']}",
                f"Number of Timeouts: {errors['timeout_error']}",
                f"Number of Assertion Errors: {errors['assertion_error']}",
                f"Number of Issues that Passed Unexpectedly: {errors['issue_sql_passed_unexpectedly']}",
                f"Total Errors: {failed}",
                f"Overall Accuracy: {self.tally.percent:.2f}%",
                f"95% interval (Wilson): {low:.2f}% to {high:.2f}%",
                f"Timestamp: {now.isoformat(timespec='seconds')}",
            ]
        )

    def _instances(self) -> str:
        return "\n".join(_instance_line(each) for each in self.scored)

    def _statistics(self) -> str:
        """The official block: who fails by the issue check alone is a success here, as there."""
        verdicts = [each.verdict for each in self.scored]
        executable = sum(not (verdict.execution_error or verdict.timeout_error) for verdict in verdicts)
        asserted = sum(verdict.assertion_error for verdict in verdicts)
        return "\n".join(
            [
                "Execution statistics",
                f"Executable: {executable}",
                f"With assertion error: {asserted}",
                f"Success: {executable - asserted}",
            ]
        )

    def _categories(self) -> str:
        rows = [f"{'Category':<20}{'Success':>9}{'Total':>9}{'Accuracy':>11}   95% interval (Wilson)"]
        for name, tally in [*self.categories().items(), ("All", self.tally)]:
            low, high = tally.interval_percent
            rows.append(
                f"{name:<20}{tally.success:>9}{tally.total:>9}{tally.percent:>10.2f}%   {low:.2f}% to {high:.2f}%"
            )
        return "\n".join(rows)

    def _listed(self, title: str, entries: Sequence[str]) -> str:
        return "\n".join([f"{title}: {len(entries)}", *(f"  {entry}" for entry in entries)]) if entries else ""


def _tally(scored: Sequence[Scored]) -> Tally:
    return Tally(sum(each.success for each in scored), len(scored))


def _instance_line(scored: Scored) -> str:
    verdict = scored.verdict
    failed = ", ".join(verdict.failed_tests) or "None"
    return (
        f"Question_{scored.instance_id}: ({verdict.passed}/{verdict.total}) test cases passed, "
        f"failed test cases: {failed} | Eval Phase: {_phase(scored)}"
    )


def _phase(scored: Scored) -> str:
    verdict = scored.verdict
    if scored.missing:
        return "No prediction"
    if verdict.execution_error:
        return "Execution Error"
    if verdict.timeout_error:
        return "Timeout Error"
    if verdict.assertion_error:
        return "Assertion Error"
    return "Issue SQL Passed Unexpectedly" if verdict.issue_sql_passed_unexpectedly else "Success"
