"""Page tokens."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bird_env.errors import InvalidRequest
from bird_server.pages import decode_token, encode_token

NUMBERS = st.integers(-(2**63), 2**63 - 1)


@given(st.one_of(NUMBERS, st.text(), st.lists(NUMBERS | st.text(), max_size=3)))
def test_a_token_reads_back(place: Any) -> None:
    assert decode_token(encode_token(place), type(place)) == place


def test_no_token_is_the_beginning() -> None:
    assert decode_token(None, int) is None


@pytest.mark.parametrize(
    "token", ["", "zzz", "é", "====", encode_token("text"), encode_token(True), encode_token(None)]
)
def test_anything_else_is_refused(token: str) -> None:
    with pytest.raises(InvalidRequest):
        decode_token(token, int)


@pytest.mark.parametrize(
    "place", [2**63, -(2**63) - 1, True, [2**63], [True], [[]], [None], "\ud800", ["a\n\udfff"], [1.5]]
)
def test_what_a_database_would_not_take_is_no_place(place: Any) -> None:
    with pytest.raises(InvalidRequest):
        decode_token(encode_token(place), type(place))
