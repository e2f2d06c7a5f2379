"""Tasks of a file, with the gold of another merged in: `read_tasks`.

The benchmark publishes its tasks without gold and tests and gives those out apart. A task that stays without is kept
and is not scorable; it is never a failed one. What is wrong with a record is a `Problem` with its place and reason, and
the rest is read; only a file that cannot be read at all is an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bird_env.errors import DataError
from bird_env.tasks.formats import Format, to_record
from bird_env.tasks.reading import Found, read_objects
from bird_env.tasks.record import Record, canonical
from bird_env.tasks.task import Task

#: What a gold file tells better than the task: it replaces what the task has.
GOLD_FIELDS = ("sol_sql", "test_cases")

#: What it may tell besides: taken where the task says nothing.
BESIDE_GOLD = (
    "conditions",
    "preprocess_sql",
    "clean_up_sql",
    "issue_sql",
    "efficiency",
    "category",
    "difficulty",
    "evidence",
)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something about one record.

    Args:
        source: The file it stands in: that of the tasks, or the gold's.
        unit: `line` or `record`, what the number counts.
        number: From 1.
        instance_id: Of the record, where it is known.
        reason: What is wrong, for a person.
        dropped: Whether the record was left out; else it was taken, and this is a remark.
    """

    source: Literal["tasks", "gold"]
    unit: str
    number: int
    instance_id: str | None
    reason: str
    dropped: bool

    def __str__(self) -> str:
        named = f" ({self.instance_id})" if self.instance_id else ""
        return f"{'gold ' if self.source == 'gold' else ''}{self.unit} {self.number}{named}: {self.reason}"


@dataclass(frozen=True, slots=True)
class TaskFile:
    """What a file of tasks held: the tasks in its order, and what was wrong with others."""

    tasks: tuple[Task, ...]
    problems: tuple[Problem, ...]

    @property
    def dropped(self) -> int:
        """Records that were left out."""
        return sum(problem.dropped for problem in self.problems)


@dataclass(frozen=True, slots=True)
class _Entry:
    found: Found
    record: Record


def read_tasks(path: Path, *, format: Format = "auto", gold: Path | None = None) -> TaskFile:
    """Read tasks as published: BIRD-CRITIC, SIX-GYM, BIRD and BIRD-RL, in JSON, JSON Lines or Parquet.

    Args:
        path: The file; its content tells what it is.
        format: What the records are; `auto` tells by their fields (see `formats`).
        gold: A file in any of these forms whose entries give `sol_sql` and `test_cases` by instance_id.

    Raises:
        DataError: A file cannot be read at all.
    """
    problems: list[Problem] = []
    entries = _entries(path, "tasks", format, problems)
    if gold is not None:
        _merge(entries, _entries(gold, "gold", format, problems), problems)
    return TaskFile(tuple(Task(entry.record) for entry in entries.values()), tuple(problems))


def _entries(
    path: Path, source: Literal["tasks", "gold"], format: Format, problems: list[Problem]
) -> dict[str, _Entry]:
    """Records by instance_id, in the file's order; of two with one id the first."""
    entries: dict[str, _Entry] = {}
    for place, found in enumerate(read_objects(path)):
        if found.fault is not None:
            problems.append(_problem(source, found, None, found.fault))
            continue
        raw: Record = {}
        try:
            raw = to_record(found.value, place, format=format, table=found.table)
            record, remarks = canonical(raw, partial=source == "gold")
        except DataError as error:
            problems.append(_problem(source, found, _given_id(raw), error.detail))
            continue
        except RecursionError:
            problems.append(_problem(source, found, _given_id(raw), "it is nested too deeply"))
            continue
        instance_id: str = record["instance_id"]
        if instance_id in entries:
            first = entries[instance_id].found
            reason = f"the same instance_id stands at {first.unit} {first.number}; this one is left out"
            problems.append(_problem(source, found, instance_id, reason))
            continue
        problems.extend(_problem(source, found, instance_id, remark, dropped=False) for remark in remarks)
        entries[instance_id] = _Entry(found, record)
    return entries


def _merge(tasks: dict[str, _Entry], gold: dict[str, _Entry], problems: list[Problem]) -> None:
    for instance_id, entry in gold.items():
        if instance_id not in tasks:
            reason = "gold for no task of this file"
            problems.append(_problem("gold", entry.found, instance_id, reason, dropped=False))
            continue
        record = tasks[instance_id].record
        replaced = [key for key in GOLD_FIELDS if record.get(key) and entry.record.get(key)]
        for key in _differing(replaced, record, entry.record):
            reason = f"its {key} replaces another that the task brings itself"
            problems.append(_problem("gold", entry.found, instance_id, reason, dropped=False))
        for key in (*GOLD_FIELDS, *BESIDE_GOLD):
            told = entry.record.get(key)
            if told and (key in GOLD_FIELDS or not record.get(key)):
                record[key] = told


def _differing(keys: Iterable[str], one: Record, other: Record) -> list[str]:
    return [key for key in keys if one[key] != other[key]]


def _problem(
    source: Literal["tasks", "gold"], found: Found, instance_id: str | None, reason: str, *, dropped: bool = True
) -> Problem:
    return Problem(source, found.unit, found.number, instance_id, reason, dropped)


def _given_id(raw: Record) -> str | None:
    """The id a bad record gives itself, to find it by."""
    value = raw.get("instance_id")
    return value if isinstance(value, str) else None
