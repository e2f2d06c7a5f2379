"""A scripted policy: for each task and rollout a list of actions, and what must come of each.

| kind | what it does | ends |
|---|---|---|
| `right` | looks around, tries the gold on its own replica, submits it | success |
| `wrong` | looks around, tries a solution that runs and is wrong, submits it | failed |
| `broken` | writes SQL that SQLite refuses, and submits that | failed |
| `mended` | writes SQL that SQLite refuses, looks around, submits the gold | success |
| `runaway` | starts a statement that never ends, is stopped, submits the gold | success |

Rollouts of one task differ in kind, and so do the same rollouts of different tasks. Everything a script does to a
replica stays there: what is scored is the submission on a fresh one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bird_env.models import ExecuteSql, Outcome, Submit
from bird_server.demo_material.task import DemoTask

Kind = Literal["right", "wrong", "broken", "mended", "runaway"]

KINDS: tuple[Kind, ...] = ("right", "wrong", "broken", "right", "runaway", "mended", "right", "wrong")

#: Never ends and uses next to no memory: only a deadline stops it.
RUNAWAY = "WITH RECURSIVE forever(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM forever) SELECT COUNT(*) FROM forever"


@dataclass(frozen=True, slots=True)
class Expected:
    """What must come of a script: the outcome of each action, and whether the submission succeeds."""

    outcomes: tuple[Outcome, ...]
    success: bool


@dataclass(frozen=True, slots=True)
class Script:
    """The actions of one trajectory; the last one submits."""

    kind: Kind
    actions: tuple[ExecuteSql | Submit, ...]
    expected: Expected


def script_for(task: DemoTask, *, place: int, rollout: int) -> Script:
    """The script of a task's rollout.

    Args:
        place: Of the task among all tasks.
        rollout: From 0; any number.
    """
    kind = KINDS[(place + rollout) % len(KINDS)]
    gold: list[str] = task.record["sol_sql"]
    looks = [ExecuteSql(sql=sql) for sql in task.explore]
    fine = [Outcome.OK] * len(looks)
    if kind in ("right", "wrong"):
        solution = gold if kind == "right" else list(task.wrong)
        tried = ExecuteSql(sql=";\n".join(solution))
        return _script(kind, [*looks, tried], [*fine, Outcome.OK], solution, success=kind == "right")
    bad = ExecuteSql(sql=task.broken)
    if kind == "broken":
        return _script(kind, [bad], [Outcome.SQL_ERROR], [task.broken], success=False)
    if kind == "mended":
        return _script(kind, [bad, *looks], [Outcome.SQL_ERROR, *fine], gold, success=True)
    return _script(kind, [ExecuteSql(sql=RUNAWAY), *looks], [Outcome.TIMEOUT, *fine], gold, success=True)


def _script(
    kind: Kind, steps: list[ExecuteSql], outcomes: list[Outcome], solution: list[str], *, success: bool
) -> Script:
    return Script(
        kind=kind,
        actions=(*steps, Submit(sql=solution)),
        expected=Expected(outcomes=(*outcomes, Outcome.SUBMITTED), success=success),
    )
