"""A step as the ledger keeps it, in its wire form."""

from __future__ import annotations

import json

from bird_env.models import ExecuteSql, RecordedStep, StepResult, Submit
from bird_server.ledger.models import StepRow


def recorded(row: StepRow) -> RecordedStep:
    """The wire form of a ledger row."""
    action = row.action
    return RecordedStep(
        epoch=row.epoch,
        step_index=row.step_index,
        action=(Submit if action["type"] == "submit" else ExecuteSql).model_validate(action),
        policy_version=row.policy_version,
        result=StepResult.model_validate(json.loads(row.reply)),
        created_at=row.created_at,
    )
