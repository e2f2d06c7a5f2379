"""A file scored from end to end, by the function; as a command: test_score_command."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bird_env.errors import DataError
from bird_server.scoring.verdict_log import VerdictLog
from bird_server.scoring.whole_file import REPORT_NAME, Request, score_whole_file
from server.scoring.support import entries, make_database

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


class Stages:
    """Remembers how far each stage was shown to be."""

    def __init__(self) -> None:
        self.done: dict[str, tuple[int, int]] = {}

    @contextmanager
    def __call__(self, label: str, total: int) -> Generator[Callable[[int], None]]:
        self.done[label] = (0, total)

        def advance(count: int) -> None:
            done, total = self.done[label]
            self.done[label] = (done + count, total)

        yield advance


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    (tmp_path / "databases" / "shop").mkdir(parents=True)
    make_database(tmp_path / "databases" / "shop" / "shop_template.sqlite")
    base = {"db_id": "shop", "preprocess_sql": [], "query": "?", "issue_sql": ["SELECT nope"]}
    write(
        tmp_path / "tasks.jsonl",
        {**base, "instance_id": "right", "sol_sql": ["SELECT count(*) FROM t"]},
        {**base, "instance_id": "wrong", "sol_sql": ["SELECT max(a) FROM t"]},
        {**base, "instance_id": "none", "sol_sql": []},
        {"no": "record"},
    )
    write(
        tmp_path / "predictions.jsonl", *({"instance_id": name, "pred_sqls": ["SELECT 3 + 0"]} for name in ("right",))
    )
    return Request(
        tasks=tmp_path / "tasks.jsonl",
        databases=tmp_path / "databases",
        out=tmp_path / "out",
        predictions=tmp_path / "predictions.jsonl",
        workers=1,
    )


def write(path: Path, *records: dict[str, Any]) -> None:
    path.write_text("".join(f"{json.dumps(each)}\n" for each in records), "utf-8")


async def test_a_file_becomes_a_report_and_nothing_else_is_left(request_: Request) -> None:
    stages = Stages()
    report = await score_whole_file(request_, stages, now=lambda: NOW)
    assert stages.done == {"databases": (1, 1), "scoring": (3, 3)}
    written = (request_.out / REPORT_NAME).read_text("utf-8")
    assert written == report.text(NOW)
    assert "2030" in written
    verdicts = {
        line["instance_id"]: line["official"]["status"]
        for line in map(json.loads, (request_.out / "verdicts.jsonl").read_text("utf-8").splitlines())
    }
    assert verdicts["right"] == "success"
    assert verdicts.get("wrong", "failed") == "failed"
    assert "none" in written
    assert report.dropped == 1
    assert {path.name for path in entries(request_.out) if not path.name.startswith(".")} == {
        REPORT_NAME,
        "verdicts.jsonl",
    }
    assert not list(request_.out.glob(".templates-*"))


async def test_what_a_killed_run_left_is_removed(request_: Request) -> None:
    left = request_.out / ".templates-of-a-killed-run"
    (left / "templates").mkdir(parents=True)
    (left / "templates" / "x.db").write_bytes(b"x")
    await score_whole_file(request_, Stages(), now=lambda: NOW)
    assert not left.exists()


async def test_two_runs_cannot_share_a_folder(request_: Request) -> None:
    with VerdictLog(request_.out), pytest.raises(DataError):
        await score_whole_file(request_, Stages(), now=lambda: NOW)


async def test_without_predictions_gold_itself_is_judged(request_: Request) -> None:
    report = await score_whole_file(replace(request_, predictions=None, mode="gold"), Stages(), now=lambda: NOW)
    verdicts = (request_.out / "verdicts.jsonl").read_text("utf-8")
    assert verdicts.count('"success"') == 2
    assert report.text(NOW).count("none") >= 1


@pytest.mark.parametrize("field", ["tasks", "databases", "predictions"])
async def test_a_file_that_is_not_there_is_named(request_: Request, tmp_path: Path, field: str) -> None:
    absent: dict[str, Any] = {field: tmp_path / "no-such-thing"}
    with pytest.raises(DataError, match="no-such-thing"):
        await score_whole_file(replace(request_, **absent), Stages(), now=lambda: NOW)
