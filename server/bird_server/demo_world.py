"""The demonstration's world: a database of our own, tasks on it, and a scripted policy that knows what it will get.

    build_database(path)      the database, the same rows every time, in well under a second
    TASKS                     its tasks as BIRD-CRITIC records, gold and tests included
    script(task_id, rollout)  the actions of one trajectory, and what must come of each

Everything in it was written for this project. It uses no extension of SQLite that a stock Python might lack.
"""

from __future__ import annotations

from typing import Any

from bird_server.demo_material.changes import CHANGES
from bird_server.demo_material.policy import Expected, Script, script_for
from bird_server.demo_material.questions import QUESTIONS
from bird_server.demo_material.tables import build_database
from bird_server.demo_material.task import DATABASE

__all__ = ["DATABASE", "TASKS", "Expected", "Script", "build_database", "script"]

_ALL = {task.record["instance_id"]: (place, task) for place, task in enumerate([*QUESTIONS, *CHANGES])}

#: The records, in the order of their script places.
TASKS: list[dict[str, Any]] = [task.record for _, task in _ALL.values()]


def script(task_id: str, rollout: int) -> Script:
    """The scripted policy's rollout of a task.

    Raises:
        KeyError: There is no such task.
    """
    place, task = _ALL[task_id]
    return script_for(task, place=place, rollout=rollout)
