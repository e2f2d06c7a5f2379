"""The progress bar: on standard error, for people only."""

from __future__ import annotations

import pytest

from bird_server.commands._progress import progress_bar


def test_a_program_sees_nothing_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("scoring", 3) as advance:
        advance(1)
        advance(2)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_sees_how_far_it_is_and_standard_output_stays_empty(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "100"}.items():
        monkeypatch.setenv(name, value)
    with progress_bar("scoring", 3) as advance:
        advance(3)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "scoring" in printed.err
    assert "3/3" in printed.err


def test_an_error_inside_is_not_swallowed() -> None:
    with pytest.raises(ZeroDivisionError), progress_bar("scoring", 1):
        raise ZeroDivisionError
