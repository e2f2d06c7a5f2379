"""The one rule for finding a data directory."""

from __future__ import annotations

from pathlib import Path

from bird_server.datadir import DataDirectory, data_directory


def test_a_named_directory_wins_over_the_environment() -> None:
    assert data_directory(Path("named"), {"BIRD_ENV_DATA": "other"}).root == Path("named")


def test_the_environment_wins_over_the_default() -> None:
    assert data_directory(None, {"BIRD_ENV_DATA": "/srv/data"}).root == Path("/srv/data")
    assert data_directory(None, {"BIRD_ENV_DATA": ""}).root == Path("bird_env_data")
    assert data_directory(None, {}).root == Path("bird_env_data")


def test_everything_lies_beneath_it() -> None:
    directory = DataDirectory(Path("/d"))
    assert (directory.store, directory.catalogue, directory.ledger) == (
        Path("/d/store"),
        Path("/d/catalogue.db"),
        Path("/d/ledger.db"),
    )
