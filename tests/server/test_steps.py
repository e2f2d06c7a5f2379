"""A step from the ledger, in its wire form."""

from __future__ import annotations

import json

import pytest

from bird_env.models import (
    ExecuteSql,
    Observation,
    ObservationFormat,
    Outcome,
    RecordedStep,
    StepRequest,
    StepResult,
    Submit,
)
from bird_server.ledger.store import Ledger
from bird_server.records import insert_step
from bird_server.steps import recorded
from bird_server.wire import to_json
from trajectory_rows import NOW


@pytest.mark.parametrize("action", [ExecuteSql(sql="SELECT '\ud83d', '\0'"), Submit(sql=["a", "b"]), Submit(sql=[])])
async def test_a_step_reads_back_as_it_was_answered(ledger: Ledger, action: ExecuteSql | Submit) -> None:
    observation = Observation(
        text="\ud83d", format=ObservationFormat.JSON, columns=["\udce9"], rows=[[{"$real": "Infinity"}, 1.0]]
    )
    outcome = Outcome.OK if action.type == "execute_sql" else Outcome.SUBMITTED
    result = StepResult(
        trajectory_id="t1", epoch=1, step_index=2, observation=observation, outcome=outcome, elapsed_ms=0.5
    )
    request = StepRequest(epoch=1, step_index=2, action=action, policy_version=4)
    await ledger.write(insert_step(request, "f", result, None, reply=to_json(result), at=NOW))
    row = await ledger.step("t1", 1, 2)
    assert row is not None
    step = recorded(row)
    assert step == RecordedStep(epoch=1, step_index=2, action=action, policy_version=4, result=result, created_at=NOW)
    assert type(step.action) is type(action)
    assert json.loads(to_json(step))["result"] == json.loads(to_json(result))
