"""One table from the storage engine's errors to ours, total over the engine's tree.

Who can do something about it decides:

* A file given to an import (`SourceError` and what is below it) is mended by whoever gave it: `DataError`.
* Room that comes back when disk is freed or replicas are released (`StoreFull`, and `TooManyLinks`, since links are
  used up like descriptors) is worth a retry: `StoreFull`.
* A closed store belongs to a service that is stopping: `ShuttingDown`.
* A template that is not there is a name that stands for nothing: `UnknownDatabase`.
* Everything else is the operator's or ours, and no request can be changed to avoid it: `InternalError`, which keeps the
  engine's code (`engine_code`) and its hint. That is the set-up (`StoreBusy`, `CrossDevice`, `LinkRefused`,
  `SettingsDidNotHold`, `GuardFailed`), damage (`TemplateDamaged`: no `DataError`, since the import was sound and the
  store was written to since), and defects (`TemplateInUse`, `ReplicaBusy`, `ReplicaClosed`, `UnknownPosition`,
  `EngineFault`: the service orders its calls so that they cannot happen).
"""

from __future__ import annotations

from bird_env.errors import BirdEnvError, DataError, InternalError, ShuttingDown, StoreFull, UnknownDatabase
from bird_snapshots import errors as engine_errors

#: Looked up along the method resolution order, so that the nearest ancestor decides.
TABLE: dict[type[Exception], type[BirdEnvError]] = {
    engine_errors.SourceError: DataError,
    engine_errors.StoreFull: StoreFull,
    engine_errors.TooManyLinks: StoreFull,
    engine_errors.StoreClosed: ShuttingDown,
    engine_errors.TemplateMissing: UnknownDatabase,
    engine_errors.SnapshotError: InternalError,
}


def translate(error: engine_errors.SnapshotError) -> BirdEnvError:
    """Our error for one of the engine's, with its hint."""
    for ancestor in type(error).__mro__:
        if ancestor in TABLE:
            return TABLE[ancestor](str(error), hint=error.hint, engine_code=error.code)
    raise TypeError(f"{type(error).__name__} is no SnapshotError")
