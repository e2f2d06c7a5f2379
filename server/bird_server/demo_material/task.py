"""A task of the demonstration, with what its scripted policy tries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DATABASE = "bike_coop"


@dataclass(frozen=True, slots=True)
class DemoTask:
    """One task.

    Args:
        record: As BIRD-CRITIC publishes tasks, gold and tests included.
        explore: Statements that look around; each runs without error on the database as the task begins.
        wrong: A solution that runs and is wrong.
        broken: A statement that SQLite refuses.
    """

    record: dict[str, Any]
    explore: tuple[str, ...]
    wrong: tuple[str, ...]
    broken: str


def demo_task(
    instance_id: str,
    category: str,
    query: str,
    *,
    issue: str | list[str],
    gold: str | list[str],
    explore: list[str],
    wrong: str | list[str],
    broken: str,
    tests: list[str] | None = None,
    preprocess: list[str] | None = None,
    clean_up: list[str] | None = None,
    conditions: dict[str, Any] | None = None,
) -> DemoTask:
    """A task; without `tests` the evaluator compares its result with the gold's."""
    record: dict[str, Any] = {
        "instance_id": instance_id,
        "db_id": DATABASE,
        "category": category,
        "query": query,
        "issue_sql": _listed(issue),
        "sol_sql": _listed(gold),
        "preprocess_sql": preprocess or [],
        "clean_up_sql": clean_up or [],
        "test_cases": tests or [],
    }
    if conditions is not None:
        record["conditions"] = conditions
    return DemoTask(record=record, explore=tuple(explore), wrong=tuple(_listed(wrong)), broken=broken)


def _listed(sql: str | list[str]) -> list[str]:
    return [sql] if isinstance(sql, str) else sql
