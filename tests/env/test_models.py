"""The wire's models: through JSON and back, strict in what is asked, lenient in what is answered."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from bird_env import models
from bird_env._protocol import encode
from bird_env.models import (
    CreateScore,
    CreateTrajectory,
    ExecuteSql,
    Limits,
    Observation,
    ObservationFormat,
    Outcome,
    Page,
    RecordedStep,
    Reply,
    Request,
    Score,
    ScoreRequest,
    ScoreStatus,
    SqlError,
    StatementOutcome,
    StepRequest,
    StepResult,
    Submit,
    TaskInfo,
)
from bird_env.values import encode_rows

#: What a policy writes, a lone surrogate among it.
SQL = st.text(st.characters(min_codepoint=0))
IDS = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._:@=+~-]{0,199}\Z")
VALUES = st.none() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
ACTIONS = st.builds(ExecuteSql, sql=SQL) | st.builds(Submit, sql=st.lists(SQL))
STEPS = st.builds(StepRequest, epoch=st.integers(0, 9), step_index=st.integers(0, 9), action=ACTIONS)
OBSERVATIONS = st.builds(
    Observation,
    text=SQL,
    format=st.sampled_from(ObservationFormat),
    columns=st.lists(SQL, max_size=3),
    rows=st.lists(st.lists(VALUES, max_size=3), max_size=3).map(encode_rows),
    error=st.none() | st.builds(SqlError, message=SQL),
    statements=st.lists(st.builds(StatementOutcome, sql=SQL, outcome=st.sampled_from(Outcome)), max_size=2),
)
SCORES = st.builds(
    Score, task_id=st.text(), status=st.sampled_from(ScoreStatus), reward=st.none() | st.sampled_from([0.0, 1.0])
)
RESULTS = st.builds(
    StepResult,
    trajectory_id=IDS,
    epoch=st.integers(0, 9),
    step_index=st.integers(0, 9),
    observation=OBSERVATIONS,
    outcome=st.sampled_from(Outcome),
    elapsed_ms=st.floats(0, 1e6),
    reward=st.none() | st.floats(-1, 1),
    lease_expires_at=st.none() | st.datetimes(timezones=st.just(UTC)),
    score=st.none() | SCORES,
)
RECORDED = st.builds(
    RecordedStep,
    epoch=st.integers(0, 9),
    step_index=st.integers(0, 9),
    action=ACTIONS,
    result=RESULTS,
    created_at=st.datetimes(timezones=st.just(UTC)),
)
CREATES = st.builds(
    CreateTrajectory,
    trajectory_id=st.none() | IDS,
    task_id=st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    preprocess_sql=st.none() | st.lists(SQL),
    metadata=st.dictionaries(st.text(), st.none() | st.integers() | SQL | st.lists(st.none())),
    seed=st.none() | st.integers(-(2**63), 2**63 - 1),
)


def models_of(kind: type[BaseModel]) -> list[type[BaseModel]]:
    found = [each for each in vars(models).values() if isinstance(each, type) and issubclass(each, kind)]
    return [each for each in found if each not in (Request, Reply, BaseModel)]


@given(STEPS | CREATES)
def test_requests_read_back_through_json(request: BaseModel) -> None:
    assert type(request).model_validate(json.loads(encode(request))) == request


@settings(max_examples=40)
@given(RESULTS | RECORDED | SCORES)
def test_replies_read_back_through_json(reply: BaseModel) -> None:
    wire = json.dumps(reply.model_dump(), default=datetime.isoformat)
    assert type(reply).model_validate(json.loads(wire)) == reply


@pytest.mark.parametrize("model", models_of(Request), ids=lambda model: model.__name__)
def test_a_request_refuses_a_field_it_does_not_know(model: type[BaseModel]) -> None:
    with pytest.raises(ValidationError) as caught:
        model.model_validate({"no_such_field": 1})
    assert "extra_forbidden" in {each["type"] for each in caught.value.errors()}


@pytest.mark.parametrize("model", models_of(Reply), ids=lambda model: model.__name__)
def test_a_reply_may_hold_what_a_newer_server_says(model: type[BaseModel]) -> None:
    assert model.model_config.get("extra") == "allow"
    assert model.model_construct(since_v9=1).model_dump(include={"since_v9"}, warnings=False) == {"since_v9": 1}


@pytest.mark.parametrize("model", [*models_of(Request), *models_of(Reply)], ids=lambda model: model.__name__)
def test_models_are_frozen_and_documented_in_json_schema(model: type[BaseModel]) -> None:
    assert model.model_config.get("frozen") is True
    assert json.dumps(model.model_json_schema())


def test_a_statement_alone_is_a_list_of_one() -> None:
    for model, fields in ((Submit, {}), (ScoreRequest, {}), (CreateScore, {"task_id": "a"})):
        assert model.model_validate({**fields, "sql": "SELECT 1; SELECT 2"}).model_dump()["sql"] == [
            "SELECT 1; SELECT 2"
        ]
    with pytest.raises(ValidationError):
        Submit.model_validate({"sql": [1]})
    with pytest.raises(ValidationError):
        Submit.model_validate({"sql": {"a": "b"}})


@pytest.mark.parametrize(
    "action", [{"type": "other", "sql": "x"}, {"sql": "x"}, {"type": "execute_sql", "sql": ["x"]}, "x", None]
)
def test_actions_are_told_apart_by_their_type(action: Any) -> None:
    with pytest.raises(ValidationError):
        StepRequest.model_validate({"epoch": 0, "step_index": 0, "action": action})


@pytest.mark.parametrize("name", ["", "-a", "a b", "a/b", "ä", "a" * 201, "a\n", "../a"])
def test_ids_can_stand_in_addresses_and_log_lines(name: str) -> None:
    with pytest.raises(ValidationError):
        CreateTrajectory(trajectory_id=name)


@pytest.mark.parametrize(
    "limits",
    [{"sql_cpu_s": 0}, {"sql_cpu_s": -1}, {"rows": -1}, {"rows": 1.5}, {"max_steps": 0}, {"wal_mb": float("nan")}],
)
def test_limits_that_limit_nothing_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Limits.model_validate(limits)


@given(st.lists(st.lists(VALUES, min_size=1, max_size=3), max_size=3))
def test_an_observation_gives_the_values_back(rows: list[list[Any]]) -> None:
    observation = Observation(text="", format=ObservationFormat.JSON, rows=encode_rows(rows))
    read = Observation.model_validate(json.loads(encode(observation)))
    assert [list(row) for row in read.values()] == rows


def test_a_page_knows_what_it_holds() -> None:
    page = Page[TaskInfo].model_validate({"items": [], "next_page_token": None})
    assert page.items == []
    with pytest.raises(ValidationError):
        Page[TaskInfo].model_validate({"items": [{"task_id": 1}]})
