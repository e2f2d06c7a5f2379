"""The tree of errors: drawn as it is, every leaf with a code of its own, every refusal of the system in its place."""

from __future__ import annotations

import errno
import os

import pytest

from bird_snapshots import errors
from bird_snapshots.errors import SnapshotError, from_oserror, translated


def tree(root: type[SnapshotError]) -> list[type[SnapshotError]]:
    return [root, *(found for child in root.__subclasses__() for found in tree(child))]


def test_the_drawing_is_the_tree() -> None:
    drawn: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        word = line.strip(" │├└─").split(" ")[0]
        if line.startswith("    ") and word:
            drawn.append(word)
    assert sorted(drawn) == sorted(kind.__name__ for kind in tree(SnapshotError))


def test_codes_are_unique_and_every_error_says_what_to_do() -> None:
    kinds = tree(SnapshotError)
    codes = [kind.code for kind in kinds]
    assert len(set(codes)) == len(codes)
    for kind in kinds:
        if not kind.__subclasses__() and kind.__name__ not in ("ReplicaClosed", "StoreClosed"):
            assert kind.default_hint, kind


def test_a_hint_of_its_own_wins() -> None:
    assert errors.TemplateMissing("none").hint == errors.TemplateMissing.default_hint
    assert errors.TemplateMissing("none", hint="look there").hint == "look there"


@pytest.mark.parametrize("number", sorted(errno.errorcode))
def test_any_refusal_of_the_system_has_a_place(number: int) -> None:
    found = from_oserror(OSError(number, os.strerror(number)), "doing something")
    assert str(found) == f"doing something: {os.strerror(number)}"
    expected = {errno.ENOSPC: "store_full", errno.EXDEV: "cross_device", errno.EMLINK: "too_many_links"}
    if number in expected:
        assert found.code == expected[number]
    if number in (errno.EIO, errno.EINVAL, errno.ENOENT):
        assert found.code == "engine_fault"


def test_translated_lets_other_errors_pass() -> None:
    with pytest.raises(ValueError, match="mine"), translated("x"):
        raise ValueError("mine")
    with pytest.raises(errors.StoreFull, match="writing: No space left") as caught, translated("writing"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert isinstance(caught.value.__cause__, OSError)
