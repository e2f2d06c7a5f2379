"""Where the service keeps what it keeps: the one rule for finding a data directory, and the names inside it.

    store/        templates and live replicas, the storage engine's own
    catalogue.db  databases by name, and tasks
    ledger.db     trajectories, steps and scores

The directory is the one that was named (`--data DIR`), else that of the environment variable `BIRD_ENV_DATA`, else
`bird_env_data` in the working directory. All of it lies on one mount, because replicas are hard links to templates.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ENVIRONMENT_VARIABLE = "BIRD_ENV_DATA"
DEFAULT_NAME = "bird_env_data"


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """A data directory and the paths in it; nothing of it needs to exist yet."""

    root: Path

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def catalogue(self) -> Path:
        return self.root / "catalogue.db"

    @property
    def ledger(self) -> Path:
        return self.root / "ledger.db"


def data_directory(named: Path | None = None, environment: Mapping[str, str] = os.environ) -> DataDirectory:
    """The data directory that a command or a server works on; an empty variable counts as none."""
    if named is not None:
        return DataDirectory(named)
    return DataDirectory(Path(environment.get(ENVIRONMENT_VARIABLE) or DEFAULT_NAME))
