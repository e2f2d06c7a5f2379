"""The settings table, its page, and what the environment may say."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from bird_server.settings import Settings
from bird_server.settings_page import page


def test_the_page_is_the_code() -> None:
    path = Path(__file__).resolve().parents[2] / "docs" / "settings.md"
    assert path.read_text("utf-8") == page(), "run `python -m bird_server.settings_page > docs/settings.md`"


def test_every_setting_says_what_it_is_and_has_its_unit() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name
        if field.annotation is float:
            assert name.endswith(("_s", "_mb")), name


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIRD_ENV_CAPACITY", "7")
    monkeypatch.setenv("BIRD_ENV_FORMAT", "repr")
    settings = Settings()
    assert (settings.capacity, settings.format) == (7, "repr")
    assert Settings(capacity=9).capacity == 9


@pytest.mark.parametrize(
    ("name", "value"), [("CAPACITY", "0"), ("LEASE_S", "-1"), ("ENGINE_FUNCTIONS", "some"), ("ROWS", "x")]
)
def test_a_value_out_of_range_is_an_error_at_start(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"BIRD_ENV_{name}", value)
    with pytest.raises(ValidationError):
        Settings()
