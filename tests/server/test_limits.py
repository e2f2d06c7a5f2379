"""Limits as they hold: the smaller of what was asked for and what the server has, in the engine's units."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bird_env.models import Limits as WireLimits
from bird_server.limits import TrajectoryLimits
from bird_server.settings import Settings
from bird_snapshots.limits import Limits as EngineLimits


def test_every_limit_of_the_wire_is_held_and_has_a_setting() -> None:
    held = {field.name for field in fields(TrajectoryLimits)}
    assert held == set(WireLimits.model_fields)
    assert held <= set(Settings.model_fields)


def test_what_is_not_asked_for_is_the_servers() -> None:
    settings = Settings(sql_cpu_s=7.0, rows=11)
    resolved = TrajectoryLimits.resolve(WireLimits(), settings)
    assert resolved.wire() == {name: getattr(settings, name) for name in WireLimits.model_fields}


@given(asked=st.integers(0, 10**9), own=st.integers(0, 10**9))
def test_what_is_asked_for_is_cut_to_the_servers(asked: int, own: int) -> None:
    resolved = TrajectoryLimits.resolve(WireLimits(rows=asked), Settings(rows=own))
    assert resolved.rows == min(asked, own)


def test_infinity_is_the_servers_and_nonsense_is_refused() -> None:
    resolved = TrajectoryLimits.resolve(WireLimits(sql_cpu_s=float("inf"), wal_mb=float("inf")), Settings())
    assert (resolved.sql_cpu_s, resolved.wal_mb) == (30.0, 256.0)
    for nonsense in ({"sql_cpu_s": float("nan")}, {"wal_mb": 0}, {"rows": -1}, {"max_steps": 0}, {"text_chars": 99}):
        with pytest.raises(ValidationError):
            WireLimits.model_validate(nonsense)


def test_the_engine_gets_bytes_of_decimal_megabytes() -> None:
    engine = TrajectoryLimits.resolve(WireLimits(wal_mb=1.5, temp_mb=0.25, sql_cpu_s=0.5), Settings()).engine()
    assert engine == EngineLimits(
        cpu_s=0.5,
        wall_s=120.0,
        rows=1_000,
        result_bytes=1_000_000,
        value_bytes=1_000_000,
        wal_bytes=1_500_000,
        temp_bytes=250_000,
    )


def test_the_least_that_can_be_asked_for_is_still_a_limit() -> None:
    least = WireLimits(
        sql_cpu_s=1e-300,
        sql_wall_s=1e-300,
        rows=0,
        result_bytes=1_000,
        value_bytes=1_000,
        wal_mb=1e-300,
        temp_mb=1e-300,
    )
    assert TrajectoryLimits.resolve(least, Settings()).engine().wal_bytes == 0


def test_what_is_stored_reads_back() -> None:
    limits = TrajectoryLimits.resolve(WireLimits(wal_mb=0.1), Settings())
    assert TrajectoryLimits.from_wire(limits.wire()) == limits
