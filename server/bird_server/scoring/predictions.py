"""Predictions as the benchmark's example outputs have them: one object a task, `instance_id` and `pred_sqls`.

A text counts as a list of one, `pred_sql` as `pred_sqls`, and nothing is split or stripped: both can change a verdict.
Whole records with their prediction in them are read as well. Of several for one task the last counts, since a run that
was taken up again appends. What cannot be used is named with its place, and the rest is read.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bird_env.tasks.reading import read_objects
from bird_env.tasks.record import is_object, plain

_KEYS = ("pred_sqls", "pred_sql")


@dataclass(slots=True)
class Predictions:
    """What a file of predictions holds.

    Args:
        by_id: Statements by instance_id, as the file has them: mostly a list of texts. Null is an empty prediction.
        problems: What could not be used, a sentence each.
    """

    by_id: dict[str, Any] = field(default_factory=dict[str, Any])
    problems: list[str] = field(default_factory=list[str])


def read_predictions(path: Path) -> Predictions:
    """The predictions of a JSON, JSON Lines or Parquet file.

    Raises:
        DataError: The file cannot be read at all.
    """
    predictions = Predictions()
    for found in read_objects(path):
        place = f"{path.name}, {found.unit} {found.number}"
        raw = found.value
        if found.fault is not None or not is_object(raw):
            predictions.problems.append(f"{place}: {found.fault or 'not an object'}")
            continue
        given = raw.get("instance_id")
        if isinstance(given, bool) or not isinstance(given, str | int):
            predictions.problems.append(f"{place}: no instance_id")
            continue
        instance_id = str(given)
        key = next((key for key in _KEYS if key in raw), None)
        if key is None:
            predictions.problems.append(f"{place} ({instance_id}): no pred_sqls")
            continue
        if instance_id in predictions.by_id:
            predictions.problems.append(f"{place} ({instance_id}): replaces an earlier prediction")
        value = plain(raw[key])
        predictions.by_id[instance_id] = [] if value is None else value
    return predictions


def prediction_digest(prediction: Any) -> str:
    """sha256 (hexadecimal) over the prediction as ASCII JSON: lone surrogates have one spelling there."""
    return hashlib.sha256(json.dumps(prediction, sort_keys=True).encode("ascii")).hexdigest()
