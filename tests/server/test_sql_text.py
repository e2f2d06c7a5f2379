"""The word that a statement begins with, past everything that SQLite passes over."""

from __future__ import annotations

import pytest

from bird_server.sql_text import first_word


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "select*FROM t",
        "  \n\t SELECT 1",
        "-- why\nSELECT 1",
        "/* a */ /* b\n */SELECT 1",
        "/* -- */--*/\nSELECT 1",
        ";; SELECT 1",
        "\ufeffSELECT 1",
        "\ufeff;-- x\n;SELECT 1",
        "SELECT/**/1",
        "SELECT\0",
    ],
)
def test_it_is_found_past_blanks_comments_semicolons_and_a_byte_order_mark(sql: str) -> None:
    assert first_word(sql) == "select"


@pytest.mark.parametrize(
    "sql", ["", "   ", "-- only this", "/* never closed SELECT", "(SELECT 1)", "'select'", "1", ";"]
)
def test_there_may_be_none(sql: str) -> None:
    assert first_word(sql) == ""


def test_a_longer_word_is_another_word() -> None:
    assert first_word("WITHOUT x") == "without"
    assert first_word("selection") == "selection"


def test_a_long_text_is_read_once() -> None:
    """Nothing to go back for: a megabyte of blanks and comments takes as long as reading it."""
    assert first_word(" -- x\n/* y */;" * 100_000 + "pragma x") == "pragma"
    assert first_word("/*" * 500_000) == ""
