"""Predictions as files have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bird_env.errors import DataError
from bird_server.scoring.predictions import prediction_digest, read_predictions


def write(folder: Path, text: str) -> Path:
    path = folder / "predictions.jsonl"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("line", "prediction"),
    [
        ('{"instance_id": "a", "pred_sqls": ["SELECT 1", "SELECT 2"]}', ["SELECT 1", "SELECT 2"]),
        ('{"instance_id": "a", "pred_sqls": "SELECT \'a--b\'\\n"}', "SELECT 'a--b'\n"),
        ('{"instance_id": "a", "pred_sql": ["SELECT 1"]}', ["SELECT 1"]),
        ('{"instance_id": "a", "pred_sqls": null}', []),
        ('{"instance_id": "a", "pred_sqls": ["\\ud800"]}', ["\ud800"]),
        ('{"instance_id": "a", "query": "x", "test_cases": [], "pred_sqls": []}', []),
        ('[{"instance_id": "a", "pred_sqls": ["SELECT 1"]}]', ["SELECT 1"]),
    ],
)
def test_forms_of_a_prediction(tmp_path: Path, line: str, prediction: Any) -> None:
    assert read_predictions(write(tmp_path, line)).by_id == {"a": prediction}


def test_a_number_is_an_id_too(tmp_path: Path) -> None:
    assert read_predictions(write(tmp_path, '{"instance_id": 7, "pred_sqls": []}')).by_id == {"7": []}


def test_the_last_of_several_counts_and_it_is_said(tmp_path: Path) -> None:
    read = read_predictions(
        write(tmp_path, '{"instance_id":"a","pred_sqls":["1"]}\n{"instance_id":"a","pred_sqls":["2"]}\n')
    )
    assert read.by_id == {"a": ["2"]}
    assert read.problems == ["predictions.jsonl, line 2 (a): replaces an earlier prediction"]


def test_what_cannot_be_used_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    lines = [
        '{"instance_id":"a","pred_sqls":["1"]}',
        "nonsense",
        "",
        "[]",
        '{"pred_sqls":[]}',
        '{"instance_id":"b"}',
        '{"inst',
    ]
    read = read_predictions(write(tmp_path, "\n".join(lines)))
    assert read.by_id == {"a": ["1"]}
    assert [problem.split(": ")[0] for problem in read.problems] == [
        "predictions.jsonl, line 2",
        "predictions.jsonl, line 4",
        "predictions.jsonl, line 5",
        "predictions.jsonl, line 6 (b)",
        "predictions.jsonl, line 7",
    ]


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        read_predictions(tmp_path / "nothing.jsonl")


def test_digests_tell_predictions_apart() -> None:
    several: list[Any] = [[], "", [""], "SELECT 1", ["SELECT 1"], ["SELECT 1 "], ["\ud800"], {"a": 1}]
    assert len({prediction_digest(each) for each in several}) == len(several)
    assert prediction_digest(["a"]) == prediction_digest(["a"])
