"""The client's guide says what the code does: its examples compile, import, and call what exists."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

from bird_env import Client, _lanes, _retry
from bird_env.testing import in_process
from env.fake_server import FakeServer

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "client.md"
TEXT = GUIDE.read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("source", BLOCKS)
def test_examples_compile_and_import_what_exists(source: str) -> None:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module or "")
            assert [each.name for each in node.names if not hasattr(module, each.name)] == []


def test_calls_of_the_client_exist() -> None:
    called = set(re.findall(r"\bclient\.(\w+)\(", TEXT))
    assert len(called) > 5
    assert [name for name in called if not hasattr(Client, name)] == []


def test_numbers_are_the_codes() -> None:
    policy = _retry.RetryPolicy()
    said = f"from {policy.first_wait_s:g} s to {policy.max_wait_s:g} s"
    assert said in TEXT
    assert f"`retry_for_s` ({policy.retry_for_s:g} s by default)" in TEXT
    assert f"up to {_lanes.MAX_LANES:,} connections" in TEXT
    assert f"keeps them for {_lanes.KEEPALIVE_S:g} s" in TEXT


def test_the_first_example_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with in_process(FakeServer()) as transport:
        monkeypatch.setattr("bird_env.Client", lambda: Client("http://fake", transport=transport))
        example = BLOCKS[0].replace("orders_1", "shop_1").replace(".score.official", ".score.status")
        exec(compile(example, str(GUIDE), "exec"), {})
    assert "Mend it." in capsys.readouterr().out
