"""One table from the storage engine's errors to ours; a test proves that it covers the engine's whole tree."""

from __future__ import annotations

from bird_env.errors import BirdEnvError, DataError, InternalError, StoreFull, UnknownDatabase
from bird_snapshots import errors as engine_errors

#: Looked up along the method resolution order, so that the nearest ancestor decides.
TABLE: dict[type[Exception], type[BirdEnvError]] = {
    engine_errors.SourceError: DataError,
    engine_errors.TemplateMissing: UnknownDatabase,
    engine_errors.StoreFull: StoreFull,
    engine_errors.SnapshotError: InternalError,
}


def translate(error: engine_errors.SnapshotError) -> BirdEnvError:
    """Our error for one of the engine's, with its hint."""
    for ancestor in type(error).__mro__:
        if ancestor in TABLE:
            return TABLE[ancestor](str(error), hint=error.hint, engine_code=error.code)
    raise TypeError(f"{type(error).__name__} is no SnapshotError")
