"""One task: an issue with a database, as BIRD-CRITIC and BIRD pose it, and the gold that judges a solution.

A `Task` is a view of one record in the official evaluator's form (`record`, what the scorer is given); every other
attribute is read from it, so that the two cannot disagree. `public()` is the only part that a policy may see.
"""

from __future__ import annotations

import ast
import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from bird_env.models import TaskInfo
from bird_env.tasks.record import Record, canonical, canonical_json, database_of


@dataclass(frozen=True, eq=False)
class Task:
    """One task. Equal to another when their records are.

    Args:
        record: The record in the evaluator's form, as `Task.from_record` makes it. Not to be changed.
    """

    record: Record

    @classmethod
    def from_record(cls, raw: Mapping[str, Any]) -> Task:
        """The task of a BIRD-CRITIC or SIX-GYM record.

        Raises:
            DataError: The evaluator could do nothing with it; the detail says why.
        """
        return cls(canonical(raw)[0])

    @classmethod
    def from_json(cls, text: str) -> Task:
        """The task that `to_json` wrote."""
        return cls(json.loads(text))

    def to_json(self) -> str:
        """The record as ASCII JSON with sorted keys: one text for one task."""
        return canonical_json(self.record)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Task) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Task({self.instance_id!r}, database={self.database!r}, scorable={self.scorable})"

    @property
    def instance_id(self) -> str:
        return cast("str", self.record["instance_id"])

    @cached_property
    def database(self) -> str:
        """The name of its database; the evaluator's own default where a record was made without one."""
        return database_of(self.record) or "unknown"

    @property
    def category(self) -> str | None:
        """Such as Query, Management, Efficiency, Personalization."""
        return self.record.get("category") or None

    @property
    def difficulty(self) -> str | None:
        """Such as simple, moderate, challenging."""
        return self.record.get("difficulty") or None

    @property
    def issue(self) -> str:
        """The user's text."""
        return self.record.get("query") or self.record.get("question") or ""

    @property
    def evidence(self) -> str | None:
        """What BIRD tells beside the question."""
        return self.record.get("evidence") or None

    @cached_property
    def issue_sql(self) -> tuple[str, ...]:
        """The user's attempt, which does not do what it should."""
        return _texts(self.record.get("issue_sql"))

    @cached_property
    def preprocess_sql(self) -> tuple[str, ...]:
        """What is run on the database before anything else."""
        return _texts(self.record.get("preprocess_sql"))

    @cached_property
    def clean_up_sql(self) -> tuple[str, ...]:
        return _texts(self.record.get("clean_up_sql"))

    @cached_property
    def sol_sql(self) -> tuple[str, ...]:
        """The gold solution."""
        return _texts(self.record.get("sol_sql"))

    @cached_property
    def test_cases(self) -> tuple[str, ...]:
        """Sources of the test functions; with none, the evaluator compares results with the gold's."""
        return _texts(self.record.get("test_cases"))

    @property
    def conditions(self) -> Any:
        """What tests are told beside; the evaluator's own default where the record says nothing."""
        return self.record.get("conditions", {})

    @cached_property
    def scorable(self) -> bool:
        """Whether there is gold to judge by: a gold solution, or tests that do not ask for one.

        A task whose tests compare with a gold solution that is not there would fail every solution, so it has none.
        """
        if any(isinstance(entry, str) and entry.strip() for entry in self.record.get("sol_sql") or ()):
            return True
        return bool(self.test_cases) and not any(_asks_for_gold(source) for source in self.test_cases)

    @cached_property
    def digest(self) -> str:
        """sha256 (hexadecimal) over the canonical record: any change of the task changes it."""
        return hashlib.sha256(self.to_json().encode("ascii")).hexdigest()

    def public(self) -> TaskInfo:
        """What a policy may see: never the gold, never the tests."""
        return TaskInfo(
            task_id=self.instance_id,
            database=self.database,
            category=self.category,
            difficulty=self.difficulty,
            issue=self.issue,
            evidence=self.evidence,
            issue_sql=list(self.issue_sql),
            preprocess_sql=list(self.preprocess_sql),
            scorable=self.scorable,
            digest=self.digest,
        )


def _texts(value: Any) -> tuple[str, ...]:
    """Entries as texts to show and to run; one that is no text becomes its JSON, which no database takes for SQL."""
    if value is None:
        return ()
    entries: list[Any] = list(value)
    return tuple(entry if isinstance(entry, str) else json.dumps(entry) for entry in entries)


def _asks_for_gold(source: str) -> bool:
    """Whether a test function reads its second argument, the gold solution; yes where it cannot be told."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python thinks of the style of a test is no matter here
            module = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == "test_case"]
    if not functions:
        return True
    arguments = functions[-1].args
    positional = [*arguments.posonlyargs, *arguments.args]
    names = {positional[1].arg} if len(positional) > 1 else set[str]()
    if arguments.vararg is not None:
        names.add(arguments.vararg.arg)
    read = {node.id for node in ast.walk(functions[-1]) if isinstance(node, ast.Name)}
    return bool(names & read) or not names
