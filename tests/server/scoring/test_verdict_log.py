"""`verdicts.jsonl`: what is reused, what is dropped, and what a kill leaves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bird_env.errors import DataError
from bird_server.scoring.job import ScoringResult, Verdict
from bird_server.scoring.verdict_log import ScoringKey, VerdictLog

KEY = ScoringKey("task", "template", "prediction", "pred", 180.0, (("python", "3"), ("sqlite", "3.40.1")))
RESULT = ScoringResult(Verdict("failed", 1, 2, ["test_2"], False, False, True, None), 12.3456, "completed")


def write_one(folder: Path, instance_id: str = "a") -> None:
    with VerdictLog(folder) as log:
        log.begin()
        log.add(instance_id, KEY, RESULT, category="Query")


def test_a_line_holds_the_official_fields_and_what_they_depend_on(tmp_path: Path) -> None:
    write_one(tmp_path)
    line = json.loads((tmp_path / "verdicts.jsonl").read_text(encoding="utf-8"))
    assert line == {
        "instance_id": "a",
        "official": RESULT.verdict.as_dict(),
        "ended": "completed",
        "elapsed_ms": 12.346,
        "category": "Query",
        **KEY.as_dict(),
    }


def test_the_same_key_is_reused(tmp_path: Path) -> None:
    write_one(tmp_path)
    with VerdictLog(tmp_path) as log:
        known = log.reuse("a", KEY)
        assert known is not None
        assert known.verdict == RESULT.verdict
        assert log.reuse("b", KEY) is None
        log.begin()
    with VerdictLog(tmp_path) as log:
        assert log.reuse("a", KEY) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"task_digest": "x"},
        {"template_sha256": "x"},
        {"prediction_digest": "x"},
        {"mode": "gold"},
        {"limit_s": 5.0},
        {"versions": (("python", "3"), ("sqlite", "3.53.0"))},
    ],
)
def test_another_key_is_not_reused_and_its_line_is_dropped(tmp_path: Path, change: dict[str, Any]) -> None:
    write_one(tmp_path)
    with VerdictLog(tmp_path) as log:
        assert log.reuse("a", replace(KEY, **change)) is None
        log.begin()
    assert (tmp_path / "verdicts.jsonl").read_text(encoding="utf-8") == ""


@pytest.mark.parametrize("cut", [1, 20, 400])
def test_a_torn_last_line_is_passed_over(tmp_path: Path, cut: int) -> None:
    write_one(tmp_path)
    path = tmp_path / "verdicts.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + whole.replace(b'"a"', b'"b"')[:-cut])
    with VerdictLog(tmp_path) as log:
        assert log.reuse("a", KEY) is not None
        assert (log.reuse("b", KEY) is None) is (cut > 1)
        log.begin()
        log.add("c", KEY, RESULT)
    assert all(json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


def test_lines_of_other_kinds_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "verdicts.jsonl").write_bytes(b'\xff\n5\n{"instance_id": "a"}\n{"instance_id": 1, "official": {}}\n')
    with VerdictLog(tmp_path) as log:
        assert log.reuse("a", KEY) is None


def test_the_end_brings_the_lines_into_order(tmp_path: Path) -> None:
    with VerdictLog(tmp_path) as log:
        log.begin()
        for name in "cab":
            log.add(name, KEY, RESULT)
        log.finish(["a", "b", "c", "d"])
    lines = (tmp_path / "verdicts.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["instance_id"] for line in lines] == ["a", "b", "c"]


def test_one_run_at_a_time(tmp_path: Path) -> None:
    with VerdictLog(tmp_path), pytest.raises(DataError, match="another run"):
        VerdictLog(tmp_path)
    VerdictLog(tmp_path).close()


def test_a_folder_that_cannot_be_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot be written"):
        VerdictLog(tmp_path / "file" / "out")


def test_adding_needs_a_beginning(tmp_path: Path) -> None:
    with VerdictLog(tmp_path) as log, pytest.raises(RuntimeError):
        log.add("a", KEY, RESULT)
