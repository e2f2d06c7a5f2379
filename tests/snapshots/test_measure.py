"""The small measurement: it runs, and its figures belong together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bird_snapshots.measure import main


def test_it_measures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--template-mb", "0.5", "--rounds", "2", "--live", "5", "--folder", str(tmp_path)])
    found = json.loads(capsys.readouterr().out)
    assert 400_000 < found["template_bytes"] < 700_000
    assert found["disk_bytes_each"] == 32 + 24 + 4096, "one changed page"
    assert found["disk_times_smaller"] > 5
    ratio = found["copy_open_select_us"] / found["acquire_select_us"]
    assert found["acquire_times_faster"] == pytest.approx(ratio, abs=0.1)
    assert list(tmp_path.iterdir()) == []
