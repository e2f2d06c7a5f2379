"""Replies as bytes: ASCII JSON that every reader takes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from bird_env.models import Heartbeat, Observation, ObservationFormat, Page, TaskInfo
from bird_server.wire import raw_reply, reply, to_json


def test_json_is_compact_ascii_and_reads_back() -> None:
    observation = Observation(
        text="é\ud83d\0", format=ObservationFormat.CSV, columns=["\udce9"], rows=[["x", 1, 1.5, None, {"$blob": ""}]]
    )
    text = to_json(observation)
    assert text.isascii()
    assert ": " not in text
    assert Observation.model_validate(json.loads(text)) == observation
    assert '"format":"csv"' in text


@pytest.mark.parametrize(
    ("moment", "written"),
    [
        (datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC), "2030-01-02T03:04:05Z"),
        (datetime(2030, 1, 2, 3, 4, 5, 678_900, tzinfo=UTC), "2030-01-02T03:04:05.678900Z"),
        (datetime(2030, 1, 2, 3, tzinfo=timezone(timedelta(hours=2))), "2030-01-02T03:00:00+02:00"),
    ],
)
def test_a_date_has_its_zone(moment: datetime, written: str) -> None:
    text = to_json(Heartbeat(trajectory_id="t", lease_expires_at=moment))
    assert json.loads(text)["lease_expires_at"] == written
    assert Heartbeat.model_validate(json.loads(text)).lease_expires_at == moment


def test_a_number_that_json_lacks_is_a_defect_and_never_sent() -> None:
    with pytest.raises(ValueError, match="JSON"):
        to_json(Observation(text="", format=ObservationFormat.JSON, rows=[[float("inf")]]))
    with pytest.raises(TypeError, match="set has no JSON form"):
        to_json(Observation(text="", format=ObservationFormat.JSON, rows=[[{1}]]))


def test_a_reply_is_json_with_its_status_and_headers() -> None:
    response = reply(Page[TaskInfo](items=[]), 503, Retry_After="5", X_Other="a")
    assert (response.status_code, response.body) == (503, b'{"items":[],"next_page_token":null}')
    assert response.headers["content-type"] == "application/json"
    assert (response.headers["retry-after"], response.headers["x-other"]) == ("5", "a")
    stored = raw_reply('{"a":1}')
    assert (stored.status_code, stored.body) == (200, b'{"a":1}')
