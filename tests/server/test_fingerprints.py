"""Equal requests have equal fingerprints, however they were spelt; others have not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bird_env.models import CreateTrajectory, ExecuteSql, StepRequest, Submit
from bird_server.fingerprints import fingerprint

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), PLAIN, max_size=4), st.randoms())
def test_the_order_of_members_is_no_difference(metadata: dict[str, Any], random: Any) -> None:
    body = {"database": "shop", "metadata": metadata, "seed": 3, "lease_s": 60}
    names = list(body)
    random.shuffle(names)
    shuffled = json.loads(json.dumps({name: body[name] for name in names}))
    assert fingerprint(CreateTrajectory(**body)) == fingerprint(CreateTrajectory(**shuffled))


def test_a_default_that_is_written_out_is_no_difference() -> None:
    short = CreateTrajectory(database="shop", lease_s=60)
    long = CreateTrajectory.model_validate(
        {"database": "shop", "lease_s": 60.0, "metadata": {}, "seed": None, "limits": {"rows": None}}
    )
    assert fingerprint(short) == fingerprint(long)
    assert fingerprint(Submit.model_validate({"sql": "SELECT 1"})) == fingerprint(Submit(sql=["SELECT 1"]))


@pytest.mark.parametrize(
    "other",
    [
        {"database": "shop2"},
        {"database": "shop", "seed": 0},
        {"database": "shop", "metadata": {"x": 1}},
        {"database": "shop", "metadata": {"x": "1"}},
        {"database": "shop", "metadata": {"x": True}},
        {"database": "shop", "metadata": {"x": 1.0}},
        {"database": "shop", "limits": {"rows": 1}},
        {"database": "shop", "format": "csv"},
        {"database": "shop", "preprocess_sql": []},
        {"task_id": "shop"},
    ],
)
def test_another_request_has_another(other: dict[str, Any]) -> None:
    assert fingerprint(CreateTrajectory(**other)) != fingerprint(CreateTrajectory(database="shop"))


def test_actions_of_two_kinds_differ_and_a_lone_surrogate_has_one_too() -> None:
    assert fingerprint(ExecuteSql(sql="x")) != fingerprint(Submit(sql=["x"]))
    assert fingerprint(ExecuteSql(sql="\ud83d")) != fingerprint(ExecuteSql(sql="\ud83e"))


def test_what_is_excluded_does_not_count() -> None:
    one, two = (
        StepRequest(epoch=0, step_index=0, action=ExecuteSql(sql="x"), policy_version=version) for version in (1, 2)
    )
    assert fingerprint(one) != fingerprint(two)
    assert fingerprint(one, exclude={"policy_version"}) == fingerprint(two, exclude={"policy_version"})
