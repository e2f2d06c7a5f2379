"""The error tree: closed, drawn as it is, and the same on both sides of the wire."""

from __future__ import annotations

import copy
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bird_env import errors
from bird_env.errors import BY_CODE, BirdEnvError, ErrorCode, InternalError, Problem, RequestError, ServiceError


def tree() -> dict[str, tuple[str | None, int | None]]:
    """Class name -> (base, status) as the module's docstring draws them."""
    found: dict[str, tuple[str | None, int | None]] = {}
    path: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        drawn = re.match(r"^    (?P<lines>[│├└─ ]*)(?P<name>[A-Z]\w+)(?:\s+(?P<status>\d{3})\b)?", line)
        if drawn is None:
            continue
        depth = len(drawn["lines"])
        path = [each for each in path if each[0] < depth]
        found[drawn["name"]] = (path[-1][1] if path else None, int(drawn["status"]) if drawn["status"] else None)
        path.append((depth, drawn["name"]))
    return found


def classes() -> dict[str, type[BirdEnvError]]:
    return {
        name: each for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, BirdEnvError)
    }


def test_the_drawing_names_every_class_under_its_base() -> None:
    drawn = {name: base for name, (base, _) in tree().items()}
    assert drawn == {
        name: None if each is BirdEnvError else each.__bases__[0].__name__ for name, each in classes().items()
    }


def test_every_code_is_one_class_and_every_leaf_has_its_own() -> None:
    assert set(BY_CODE) == set(ErrorCode)
    assert all(each.code == code for code, each in BY_CODE.items())
    leaves = {each for each in classes().values() if not each.__subclasses__()}
    assert leaves <= set(BY_CODE.values())
    assert len(set(BY_CODE.values())) == len(BY_CODE)


def test_only_faults_of_the_service_are_retryable() -> None:
    for each in classes().values():
        assert each.retryable is issubclass(each, ServiceError)


def test_a_retryable_error_is_drawn_as_the_services() -> None:
    for name, (_, status) in tree().items():
        if status is not None:
            assert (status >= 500) is issubclass(classes()[name], ServiceError)


@pytest.mark.parametrize("each", classes().values(), ids=lambda each: each.__name__)
def test_every_error_says_something_and_carries_what_it_is_given(each: type[BirdEnvError]) -> None:
    assert str(each()) == each.title
    error = each("what happened", hint="do this", retry_after_s=2.0, expected_step_index=4)
    assert (str(error), error.detail, error.hint, error.retry_after_s) == (
        "what happened",
        "what happened",
        "do this",
        2.0,
    )
    assert error.fields == {"expected_step_index": 4}


@pytest.mark.parametrize("each", classes().values(), ids=lambda each: each.__name__)
def test_errors_travel_between_processes(each: type[BirdEnvError]) -> None:
    error = each("d", hint="h", retry_after_s=1.0, end_reason="deleted")
    for copied in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(copied) is each
        assert (copied.detail, copied.hint, copied.retry_after_s, copied.fields) == (
            "d",
            "h",
            1.0,
            {"end_reason": "deleted"},
        )


@pytest.mark.parametrize("each", BY_CODE.values(), ids=lambda each: each.__name__)
def test_a_problem_becomes_the_class_of_its_code(each: type[BirdEnvError]) -> None:
    problem = Problem(
        title="t", status=400, detail="d", code=each.code, retryable=each.retryable, hint="h", retry_after_s=3.0
    )
    error = BirdEnvError.from_problem(problem)
    assert type(error) is each
    assert (str(error), error.hint, error.retry_after_s, error.problem) == ("d", "h", 3.0, problem)


@given(st.integers(100, 599), st.dictionaries(st.text(), st.integers() | st.text()))
def test_an_unknown_code_and_any_members_are_an_error_like_any_other(status: int, members: dict[str, object]) -> None:
    document = {"title": "t", "status": status, "detail": "d", "code": "since_v9", "retryable": False}
    error = BirdEnvError.from_problem(Problem.model_validate({**members, **document}))
    assert type(error) is (InternalError if status >= 500 else RequestError)
    known = set(Problem.model_fields)
    assert error.fields == {name: value for name, value in members.items() if name not in known}
