"""Which SQLite the engine runs: what SQL means in a replica depends on it."""

from __future__ import annotations

import apsw


def sqlite_version() -> str:
    """Version of the SQLite library that replicas are opened with, such as `3.54.1`."""
    return apsw.sqlite_lib_version()
