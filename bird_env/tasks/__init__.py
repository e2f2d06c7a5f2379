"""Tasks as BIRD-CRITIC, SIX-GYM, BIRD and BIRD-RL publish them. The base install reads all but Parquet.

>>> from bird_env.tasks import read_tasks
>>> read_tasks(Path("tasks.jsonl"), gold=Path("gold.jsonl")).tasks
"""

from bird_env.tasks.files import Problem, TaskFile, read_tasks
from bird_env.tasks.formats import Format
from bird_env.tasks.record import Record
from bird_env.tasks.task import Task

__all__ = ["Format", "Problem", "Record", "Task", "TaskFile", "read_tasks"]
