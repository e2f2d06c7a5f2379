"""docs/storage.md names what is ignored and limited, as the code has it."""

from __future__ import annotations

import re
from pathlib import Path

import apsw

import bird_snapshots
from bird_snapshots.connect import CHECK_EVERY_STEPS, CHECK_WRITES_EVERY_STEPS, LIMITS
from bird_snapshots.policy import IGNORED, READABLE

TEXT = (Path(bird_snapshots.__file__).parents[2] / "docs" / "storage.md").read_text(encoding="utf-8")


def test_every_ignored_pragma_is_listed_and_marked() -> None:
    paragraph = TEXT[TEXT.index("**Ignored PRAGMAs.**") : TEXT.index("`PRAGMA database_list`")]
    listed = {name: bool(mark) for name, mark in re.findall(r"`([a-z_]+)`(\\\*)?", paragraph) if name != "wal"}
    assert listed == {name: name in READABLE for name in IGNORED}


def test_every_limit_is_told() -> None:
    paragraph = TEXT[TEXT.index("**Limits of SQLite**") : TEXT.index("**Limits of a call**")]
    told = {int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", paragraph)}
    assert {value for limit, value in LIMITS.items() if limit != apsw.SQLITE_LIMIT_WORKER_THREADS} <= told
    assert f"{CHECK_EVERY_STEPS:,}" in TEXT
    assert f"{CHECK_WRITES_EVERY_STEPS:,}" in TEXT


def test_the_tests_it_names_exist() -> None:
    here = {path.name for path in Path(__file__).parent.iterdir()}
    assert {Path(name).name for name in re.findall(r"`([\w/]*test_\w+\.py)`", TEXT)} <= here
