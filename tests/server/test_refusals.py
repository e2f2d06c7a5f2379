"""The errors of both rooms in one form."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy.exc import IntegrityError, OperationalError

from bird_env.errors import BirdEnvError, DataError, UnknownTask
from bird_server.refusals import Refused, refusal, why
from bird_snapshots.errors import SnapshotError, SourceMissing, StoreFull


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (DataError("It is no file."), Refused("data_error", "It is no file.", None)),
        (UnknownTask("No task 'x'.", hint="Look."), Refused("unknown_task", "No task 'x'.", "Look.")),
        (StoreFull("linking: no space", hint="Free some."), Refused("store_full", "linking: no space", "Free some.")),
        (SourceMissing("gone", path=Path("x"), hint="Find it."), Refused("source_missing", "gone", "Find it.")),
    ],
)
def test_an_error_says_its_code_its_message_and_its_hint(error: BirdEnvError | SnapshotError, refused: Refused) -> None:
    assert why(error) == refused


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (FileNotFoundError(2, "No such file or directory", "a/b"), "a/b cannot be used: No such file or directory"),
        (NotADirectoryError(20, "Not a directory", b"a/b"), "a/b cannot be used: Not a directory"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (PermissionError(13, "Permission denied", "a", None, "b"), "a cannot be used: Permission denied"),
    ],
)
def test_the_operating_systems_words_have_the_path_and_a_hint(error: OSError, message: str) -> None:
    told = refusal(error)
    assert told is not None
    assert (told.code, told.message) == ("os_error", message)
    assert told.hint


def test_an_error_without_words_is_still_told() -> None:
    assert refusal(TimeoutError()) == Refused("os_error", "TimeoutError", None)
    assert refusal(OSError("by hand")) == Refused("os_error", "by hand", None)


def test_the_catalogues_library_is_told_without_its_statement() -> None:
    told = refusal(OperationalError("INSERT secret", {}, Exception("database or disk is full")))
    assert told is not None
    assert (told.code, told.message) == ("catalogue_error", "the catalogue cannot be used: database or disk is full")


def test_a_defect_is_none() -> None:
    assert refusal(ZeroDivisionError()) is None
    assert refusal(IntegrityError("INSERT", {}, Exception("UNIQUE"))) is None


def test_in_one_line_the_message_ends_once() -> None:
    assert str(Refused("c", "It is gone.", "Find it.")) == "It is gone. Find it."
    assert str(Refused("c", "It is gone", None)) == "It is gone."
