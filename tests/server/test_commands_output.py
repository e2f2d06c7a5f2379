"""How commands speak: what any text may hold must neither break a terminal nor a pipe."""

from __future__ import annotations

import json

import pytest
import typer

from bird_env.cli import shown
from bird_env.errors import DataError
from bird_server.commands._output import errors_told, megabytes, print_json, print_table


def test_json_is_ascii_whatever_it_holds(capsys: pytest.CaptureFixture[str]) -> None:
    document = {"text": "é\ud800\0\x1b"}
    print_json(document)
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert json.loads(printed) == document


def test_a_table_shows_texts_and_not_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("two", ("a", "b"), [("[bold]x[/bold]", 1), ("\x1b[31m", "\ud800")], right=("b",))
    printed = capsys.readouterr().out
    assert "[bold]x[/bold]" in printed
    assert "\x1b" not in printed
    assert "\ud800" not in printed


def test_the_column_that_takes_the_rest_is_cut_to_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("one", ("id", "text"), [("whole-identifier", "word " * 100)], rest="text")
    printed = capsys.readouterr().out
    assert "whole-identifier" in printed
    assert printed.count("word") < 20
    assert len(printed.splitlines()) == 6


def test_shown_keeps_what_can_be_printed() -> None:
    assert shown("a\tb\nc\0é\ud800") == "a b c é "
    assert megabytes(1_234_567) == "1.2 MB"


def test_an_error_is_told_with_its_hint_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as caught, errors_told():
        raise DataError("the file is empty", hint="Fill it.")
    assert caught.value.exit_code == 2
    assert capsys.readouterr().err == "the file is empty. Fill it.\n"


def test_other_errors_are_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError), errors_told():
        raise ZeroDivisionError
