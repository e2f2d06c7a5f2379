"""The errors of both rooms in one form."""

from __future__ import annotations

from pathlib import Path

import pytest

from bird_env.errors import BirdEnvError, DataError, UnknownTask
from bird_server.refusals import Refused, why
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


def test_in_one_line_the_message_ends_once() -> None:
    assert str(Refused("c", "It is gone.", "Find it.")) == "It is gone. Find it."
    assert str(Refused("c", "It is gone", None)) == "It is gone."
