"""What a scoring is asked and what it answers: plain data, stdlib only, the same on both sides of the pipe.

A record arrives as its reader left it: from JSON, or from Parquet with tuples and arrays in it. The evaluator's input
is JSON, so `plain` gives each value the form that JSON would have given it, and `failure_verdict` is the record that
the official wrapper writes for an evaluation that brought no verdict of its own (killed, died, keys missing).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

Mode = Literal["pred", "gold"]
Ended = Literal["completed", "killed_at_limit", "died"]

#: The official wrapper's limit on everything that one instance does, in seconds of wall time.
OFFICIAL_LIMIT_S = 180.0


@dataclass(frozen=True, slots=True)
class ScoringJob:
    """One solution of one task, to be judged.

    Args:
        record: The task in the official form; its keys are present or absent as published.
        pred_sqls: The solution's statements. `None` means that the key is missing; mode `gold` does not look at it.
        database: An immutable SQLite file. It is read and copied, never opened for writing.
        mode: `gold` judges the record's own `sol_sql`.
        limit_s: Wall seconds for everything, after which the evaluation is killed, which is a failure.
    """

    record: dict[str, Any]
    pred_sqls: Any
    database: Path
    mode: Mode = "pred"
    limit_s: float = OFFICIAL_LIMIT_S


@dataclass(frozen=True, slots=True)
class Verdict:
    """The public evaluator's fields, bit for bit; `issue_sql_passed_unexpectedly` is None where it wrote none."""

    status: Literal["success", "failed"]
    passed: int
    total: int
    failed_tests: list[str]
    execution_error: bool
    timeout_error: bool
    assertion_error: bool
    issue_sql_passed_unexpectedly: bool | None

    def as_dict(self) -> dict[str, Any]:
        """The fields in the order in which the official evaluator names them."""
        return {name: getattr(self, name) for name in VERDICT_FIELDS}


VERDICT_FIELDS = (
    "status",
    "passed",
    "total",
    "failed_tests",
    "execution_error",
    "timeout_error",
    "assertion_error",
    "issue_sql_passed_unexpectedly",
)


@dataclass(frozen=True, slots=True)
class ScoringResult:
    """A verdict and, apart from it, what an operator may want to know.

    `detail` holds `phases` (per phase: the first statement error, each test's outcome) and, where the evaluation did
    not end by itself, `exit`. Nothing in it enters the verdict, and it may quote gold and tests: never for policies.
    """

    verdict: Verdict
    elapsed_ms: float
    ended: Ended
    detail: dict[str, Any] = field(default_factory=dict[str, Any])
    versions: dict[str, str] = field(default_factory=dict[str, str])


def failure_verdict(record: Mapping[str, Any]) -> Verdict:
    """What the official wrapper records when an evaluation gave no verdict, or the record lacks a key.

    `test_cases` that have no length crash the official run; such a record counts as failed with no test.
    """
    tests = record.get("test_cases", [])
    total = len(cast("list[Any]", tests)) if isinstance(tests, list | str | dict) else 0
    return Verdict(
        status="failed",
        passed=0,
        total=total,
        failed_tests=[],
        execution_error=True,
        timeout_error=False,
        assertion_error=False,
        issue_sql_passed_unexpectedly=None,
    )


def plain(value: Any) -> Any:
    """The value as JSON would have brought it: arrays and tuples are lists, keys are text, subclasses their base.

    Text stays exactly as it is, lone surrogates included. What JSON has no form for (dates, decimals) becomes text.
    """
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, Mapping):
        return {_key(key): plain(item) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in cast("list[object]", value)]
    for convert in ("tolist", "to_pylist", "as_py"):  # numpy arrays and scalars, Arrow arrays, Arrow scalars
        method = getattr(value, convert, None)
        if callable(method):
            return plain(method())
    return str(value)


def _key(key: Any) -> str:
    if isinstance(key, str):
        return str.__str__(key)
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    return str(key)
