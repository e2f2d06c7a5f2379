"""Every error of the storage engine becomes the one of ours that tells the caller what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from bird_env import errors as wire
from bird_server.engine.errors import TABLE, translate
from bird_snapshots import errors as engine

#: Decided one by one: a new error of the engine has no line here, and fails the test until somebody decides.
EXPECTED: dict[type[engine.SnapshotError], type[wire.BirdEnvError]] = {
    engine.SnapshotError: wire.InternalError,
    engine.SourceError: wire.DataError,
    engine.SourceMissing: wire.DataError,
    engine.SourceUnreadable: wire.DataError,
    engine.NotADatabase: wire.DataError,
    engine.EncryptedDatabase: wire.DataError,
    engine.TruncatedDatabase: wire.DataError,
    engine.CorruptDatabase: wire.DataError,
    engine.SourceChanged: wire.DataError,
    engine.StoreError: wire.InternalError,
    engine.StoreBusy: wire.InternalError,
    engine.StoreClosed: wire.ShuttingDown,
    engine.TemplateMissing: wire.UnknownDatabase,
    engine.TemplateInUse: wire.InternalError,
    engine.TemplateDamaged: wire.InternalError,
    engine.StoreFull: wire.StoreFull,
    engine.CrossDevice: wire.InternalError,
    engine.TooManyLinks: wire.StoreFull,
    engine.LinkRefused: wire.InternalError,
    engine.SettingsDidNotHold: wire.InternalError,
    engine.GuardFailed: wire.InternalError,
    engine.ReplicaError: wire.InternalError,
    engine.ReplicaClosed: wire.InternalError,
    engine.ReplicaBusy: wire.InternalError,
    engine.UnknownPosition: wire.InternalError,
    engine.EngineFault: wire.InternalError,
}


def tree(root: type[engine.SnapshotError]) -> Iterator[type[engine.SnapshotError]]:
    yield root
    for child in root.__subclasses__():
        yield from tree(child)


def make(kind: type[engine.SnapshotError]) -> engine.SnapshotError:
    if issubclass(kind, engine.SourceError):
        return kind("what happened", path=Path("file.sqlite"))
    return kind("what happened")


def test_the_decisions_cover_the_whole_tree() -> None:
    assert set(tree(engine.SnapshotError)) == set(EXPECTED)
    assert set(TABLE) <= set(EXPECTED)


@pytest.mark.parametrize("kind", list(EXPECTED), ids=lambda kind: kind.__name__)
def test_each_becomes_its_own_with_its_hint_and_code(kind: type[engine.SnapshotError]) -> None:
    error = make(kind)
    found = translate(error)
    assert type(found) is EXPECTED[kind]
    assert found.detail == "what happened"
    assert found.hint == (error.hint or type(found).default_hint)
    assert found.fields["engine_code"] == kind.code


@pytest.mark.parametrize("kind", [kind for kind in EXPECTED if kind.retryable], ids=lambda kind: kind.__name__)
def test_what_may_succeed_later_is_told_so(kind: type[engine.SnapshotError]) -> None:
    if not issubclass(kind, engine.SourceError):  # of an import, which no client repeats by itself
        assert translate(make(kind)).retryable


def test_something_else_is_refused() -> None:
    with pytest.raises(TypeError):
        translate(cast("Any", OSError("no")))
