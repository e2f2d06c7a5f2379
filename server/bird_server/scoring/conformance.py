"""Does this scorer give the official verdicts? A file of cases with known verdicts, scored and compared field by field.

A case is one line: `id`, `database` (a file of SQL beside the cases that builds it), `task`, `pred_sqls`, `expected`
(the official fields) and `issue_sql_passed_unexpectedly`; besides `mode`, `omit_pred_sqls` (the key is missing) and
`wrapper_timeout_s` (a short limit in place of 180 s). The databases are built anew, by the scorer's own SQLite.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bird_env.errors import DataError, ScorerFault
from bird_env.tasks.reading import read_objects
from bird_env.tasks.record import is_object
from bird_server.scoring.attempts import Scorer, score_patiently
from bird_server.scoring.job import OFFICIAL_LIMIT_S, ScoringJob

_ISSUE = "issue_sql_passed_unexpectedly"


@dataclass(frozen=True, slots=True)
class Case:
    """One input and its official verdict."""

    id: str
    database: str
    job: ScoringJob
    expected: dict[str, Any]
    why: str


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A field that differs from the official verdict; `field` is `scorer` where there was no verdict at all."""

    id: str
    field: str
    expected: Any
    got: Any
    why: str

    def __str__(self) -> str:
        return f"{self.id} {self.field}: expected {json.dumps(self.expected)}, got {json.dumps(self.got)}  ({self.why})"


def read_cases(path: Path, build_in: Path) -> list[Case]:
    """The cases of a file, their databases built in a folder.

    Raises:
        DataError: The file or a database cannot be used; the detail names the case.
    """
    cases: list[Case] = []
    built: dict[str, Path] = {}
    for found in read_objects(path):
        place = f"{path.name}, {found.unit} {found.number}"
        raw = found.value
        if found.fault is not None or not is_object(raw):
            raise DataError(f"{place}: {found.fault or 'not an object'}")
        try:
            name: str = raw["database"]
            if name not in built:
                built[name] = build_database(path.parent / name, build_in / f"{len(built)}.sqlite")
            cases.append(_case(raw, built[name]))
        except KeyError as error:
            raise DataError(f"{place}: the case has no {error.args[0]!r}") from error
        except (TypeError, AttributeError) as error:
            raise DataError(f"{place}: a field has the wrong type: {error}") from error
    if not cases:
        raise DataError(f"{path} holds no case")
    return cases


def _case(raw: dict[str, Any], database: Path) -> Case:
    omitted = bool(raw.get("omit_pred_sqls")) or "pred_sqls" not in raw
    expected = dict(raw["expected"])
    if _ISSUE in raw:
        expected[_ISSUE] = raw[_ISSUE]
    job = ScoringJob(
        record=dict(raw["task"]),
        # null is a prediction, an empty one; None is a missing key
        pred_sqls=None if omitted else raw["pred_sqls"] if raw["pred_sqls"] is not None else [],
        database=database,
        mode="gold" if raw.get("mode") == "gold" else "pred",
        limit_s=float(raw.get("wrapper_timeout_s", OFFICIAL_LIMIT_S)),
    )
    return Case(str(raw["id"]), str(raw["database"]), job, expected, str(raw.get("why", "")))


def build_database(script: Path, target: Path) -> Path:
    """Run a file of SQL on a new database.

    Raises:
        DataError: The file cannot be read, or its SQL fails.
    """
    try:
        text = script.read_text(encoding="utf-8")
        with closing(sqlite3.connect(target)) as connection:
            connection.executescript(text)
            connection.commit()
    except (OSError, UnicodeDecodeError, sqlite3.Error) as error:
        raise DataError(f"the database {script.name} cannot be built: {error}") from error
    return target


async def run_cases(
    cases: Sequence[Case], scorer: Scorer, *, on_case: Callable[[Case], None] = lambda _: None
) -> list[Mismatch]:
    """Score every case, as many at once as the scorer takes; the mismatches in the cases' order."""

    async def one(case: Case) -> list[Mismatch]:
        found = await _check(case, scorer)
        on_case(case)
        return found

    return [mismatch for found in await asyncio.gather(*map(one, cases)) for mismatch in found]


async def _check(case: Case, scorer: Scorer) -> list[Mismatch]:
    try:
        result = await score_patiently(scorer, case.job)
    except ScorerFault as error:
        return [Mismatch(case.id, "scorer", "a verdict", error.detail, case.why)]
    got = result.verdict.as_dict()
    return [
        Mismatch(case.id, field, wanted, got.get(field), case.why)
        for field, wanted in case.expected.items()
        if not _same(wanted, got.get(field))
    ]


def _same(wanted: Any, got: Any) -> bool:
    """Equal in type too: in Python `1 == True`, on the wire they are two things."""
    return json.dumps(wanted, sort_keys=True) == json.dumps(got, sort_keys=True)
