"""The report: its numbers, its lines, and Wilson's interval."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bird_server.scoring.job import Verdict, failure_verdict
from bird_server.scoring.report import Report, Scored, Unscored, wilson

GOOD = Verdict("success", 2, 2, [], False, False, False, False)
DEFAULT = Verdict("success", 1, 0, [], False, False, False, False)
WRONG = Verdict("failed", 1, 2, ["test_2"], False, False, True, False)
SLOW = Verdict("failed", 0, 1, [], False, True, False, False)
ISSUE = Verdict("failed", 2, 2, [], False, False, False, True)

REPORT = Report(
    scored=[
        Scored("q1", "Query", GOOD),
        Scored("m1", "Management", WRONG),
        Scored("q2", "Query", SLOW),
        Scored("q3", "Query", ISSUE),
        Scored("n1", None, DEFAULT),
        Scored("q4", "Query", failure_verdict({"test_cases": ["x"]}), missing=True),
    ],
    unscored=[Unscored("u1", "it has no gold to be scored with")],
    problems=["line 3: not JSON"],
    versions={"sqlite": "3.40.1"},
)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        # published values: Newcombe 1998 (81 of 263, 15 of 148, 0 of 20, 1 of 29)
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_gives_published_values(successes: int, trials: int, low: float, high: float) -> None:
    found = wilson(successes, trials)
    assert found == pytest.approx((low, high), abs=5e-5)


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 3000), st.integers(1, 3000))
def test_wilson_holds_the_share_and_is_symmetric(successes: int, trials: int) -> None:
    successes = min(successes, trials)
    low, high = wilson(successes, trials)
    assert 0 <= low <= successes / trials <= high <= 1
    assert wilson(trials - successes, trials) == pytest.approx((1 - high, 1 - low))


def test_nothing_is_known_without_trials() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert math.isclose(Report([]).tally.percent, 0.0)


def test_the_numbers() -> None:
    told = REPORT.as_dict()
    assert (told["success"], told["total"], told["accuracy_percent"]) == (2, 6, 33.33)
    assert told["missing"] == ["q4"]
    assert told["unscorable"] == [{"instance_id": "u1", "reason": "it has no gold to be scored with"}]
    assert told["errors"] == {
        "execution_error": 1,
        "timeout_error": 1,
        "assertion_error": 1,
        "issue_sql_passed_unexpectedly": 1,
    }
    assert {name: (each["success"], each["total"]) for name, each in told["categories"].items()} == {
        "Query": (1, 4),
        "Management": (0, 1),
        "(none)": (1, 1),
    }


def test_the_text_is_in_the_official_style_with_our_tables() -> None:
    text = REPORT.text(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    for line in (
        "Number of Instances: 6",
        "Number of Execution Errors: 1",
        "Number of Timeouts: 1",
        "Number of Assertion Errors: 1",
        "Total Errors: 4",
        "Overall Accuracy: 33.33%",
        "Timestamp: 2026-01-02T03:04:05+00:00",
        "Question_q1: (2/2) test cases passed, failed test cases: None | Eval Phase: Success",
        "Question_m1: (1/2) test cases passed, failed test cases: test_2 | Eval Phase: Assertion Error",
        "Question_q2: (0/1) test cases passed, failed test cases: None | Eval Phase: Timeout Error",
        "Question_q3: (2/2) test cases passed, failed test cases: None | Eval Phase: Issue SQL Passed Unexpectedly",
        "Question_n1: (1/0) test cases passed, failed test cases: None | Eval Phase: Success",
        "Question_q4: (0/1) test cases passed, failed test cases: None | Eval Phase: No prediction",
        "Executable: 4",
        "With assertion error: 1",
        "Success: 3",
        "Query                       1        4     25.00%   4.56% to 69.94%",
        "Without a prediction, counted as failed: 1",
        "  u1: it has no gold to be scored with",
        "  line 3: not JSON",
        "Versions: sqlite 3.40.1",
    ):
        assert line in text.splitlines()


def test_the_summary_names_what_is_missing() -> None:
    assert "Without a prediction, counted as failed: 1 (q4)" in REPORT.summary()
    assert "Not scored, in no count: 1" in REPORT.summary()
    many = Report([Scored(f"i{number}", None, WRONG, missing=True) for number in range(30)])
    assert "i9, …" in many.summary()
