"""The published formats, each turned into a record under the official evaluator's field names.

| format | told by | where its fields go |
|---|---|---|
| `critic` (BIRD-CRITIC, SIX-GYM) | `instance_id` | as they are |
| `bird` (BIRD train, dev, mini-dev) | `question_id`, or `question` with `SQL` | `question` → query, `SQL` → sol_sql |
| BIRD-RL rows | `data_source` with `extra_info` or `reward_model` | see `_bird_rl` |

A BIRD question becomes the task `bird_dev_<question_id>`: mini-dev numbers its questions as dev does, because it is a
part of it. The train file has no `question_id`; its tasks are numbered by their place, from 0: `bird_train_<n>`. BIRD
has no tests and no broken attempt, so that such a task is judged by the evaluator's default test alone.

Only what a file says is carried over. The exception: the two other formats know nothing of `preprocess_sql`, which the
evaluator demands, so it is there and empty. Credit: the field names are those of
https://github.com/bird-bench/BIRD-CRITIC-1, https://github.com/bird-bench/mini_dev and
https://github.com/bird-bench/BIRD-RL.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from bird_env.errors import DataError
from bird_env.tasks.record import Record, is_list, is_object, without_nulls

Format = Literal["auto", "critic", "bird"]

#: Fields that the evaluator demands to be there, null or not.
DEMANDED_FIELDS = ("preprocess_sql", "sol_sql")

_RL_SQL_FIELDS = ("preprocess_sql", "issue_sql", "clean_up_sql")
_RL_OTHER_FIELDS = ("category", "difficulty", "evidence", "conditions", "efficiency")


def to_record(value: Any, place: int, *, format: Format = "auto", table: bool = False) -> Record:
    """The object of a file under the evaluator's names.

    Args:
        value: Any JSON value.
        place: Its place among the file's objects, from 0.
        format: `auto` tells by the fields.
        table: Whether it is a row of a table. A null there says that the row has no such field, but for the two fields
            that the evaluator demands; and an object may be spelt as JSON, as a column of texts holds it.

    Raises:
        DataError: It is no object, or lacks what its format cannot do without.
    """
    if not is_object(value):
        raise DataError(f"it is {'null' if value is None else type(value).__name__}, not an object")
    raw = _from_table(value) if table else value
    if format == "auto":
        if "data_source" in raw and ("extra_info" in raw or "reward_model" in raw):
            return _bird_rl(raw)
        format = "bird" if _looks_like_bird(raw) else "critic"
    return _bird(raw, place) if format == "bird" else dict(raw)


def _from_table(row: Record) -> Record:
    record: Record = without_nulls(row)
    record.update({key: None for key in DEMANDED_FIELDS if key in row and row[key] is None})
    if isinstance(record.get("conditions"), str):
        record["conditions"] = _object(record, "conditions")
    return record


def _looks_like_bird(raw: Mapping[str, Any]) -> bool:
    return "instance_id" not in raw and ("question_id" in raw or ("question" in raw and "SQL" in raw))


def _bird(raw: Record, place: int) -> Record:
    record: Record = {key: raw[key] for key in raw if key not in ("question", "SQL", "question_id", "instance_id")}
    given = raw.get("instance_id")
    number = raw.get("question_id")
    if given is not None:
        record["instance_id"] = given
    elif number is None:
        record["instance_id"] = f"bird_train_{place}"
    elif isinstance(number, bool) or not isinstance(number, int | str):
        raise DataError("question_id is neither a number nor a text")
    else:
        record["instance_id"] = f"bird_dev_{number}"
    if "question" in raw:
        record["query"] = raw["question"]
    sql = raw.get("SQL")
    if sql is not None and not isinstance(sql, str):
        raise DataError("SQL is not a text")
    if sql is not None:
        record["sol_sql"] = [sql] if sql.strip() else []
    record.setdefault("sol_sql", [])
    record.setdefault("preprocess_sql", [])
    return record


def _bird_rl(raw: Record) -> Record:
    """A row of BIRD-RL's Parquet files.

    `reward_model.ground_truth` is the gold. Everything else is looked for in `extra_info`, then in `reward_model`, then
    in the row itself; tools' `create_kwargs` repeat the same. The issue is `query` or `question` where the row has one,
    else the last message of the user in `prompt`.
    """
    extra = _object(raw, "extra_info")
    reward = _object(raw, "reward_model")
    sources = (extra, reward, raw)
    record: Record = {"preprocess_sql": [], "sol_sql": _first("ground_truth", (reward,)) or []}
    for key in ("instance_id", "selected_database", "db_id", *_RL_SQL_FIELDS, *_RL_OTHER_FIELDS, "data_source"):
        value = _first(key, sources)
        if value is not None:
            record[key] = value
    tests = _first("test_cases", (extra, reward))
    if tests is not None:
        record["test_cases"] = tests
    issue = _first("query", sources) or _first("question", sources) or _last_user_message(raw.get("prompt"))
    if issue is not None:
        record["query"] = issue
    return record


def _first(key: str, sources: tuple[Record, ...]) -> Any:
    """The first that says something; an empty list or text only where none says more."""
    given = [source[key] for source in sources if source.get(key) is not None]
    return next((value for value in given if value), given[0] if given else None)


def _object(raw: Record, key: str) -> Record:
    """A nested object; some tables hold it as JSON in a string."""
    value = raw.get(key)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{key} is a text that is not JSON") from error
    if value is None:
        return {}
    if not is_object(value):
        raise DataError(f"{key} is not an object")
    found: Record = without_nulls(value)
    return found


def _last_user_message(prompt: Any) -> str | None:
    if isinstance(prompt, str):
        return prompt
    if not is_list(prompt):
        return None
    said = (
        message.get("content") for message in reversed(prompt) if is_object(message) and message.get("role") == "user"
    )
    return next((content for content in said if isinstance(content, str)), None)
