"""Children as /proc tells them, by either way of asking."""

from __future__ import annotations

import os
import subprocess
import sys

from bird_server.scoring import procfs


def test_children_are_found_by_both_ways() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert process.pid in procfs.children()
        assert process.pid in procfs.children_by_scan(os.getpid())
        assert procfs.children(process.pid) == procfs.children_by_scan(process.pid) == []
        process.communicate(b"\n")
    assert process.pid not in procfs.children()


def test_a_process_that_is_gone_has_no_children() -> None:
    assert procfs.children(2**22 + 1) == []


def test_the_kernels_count_is_a_number() -> None:
    assert procfs.oom_kills() >= 0


def test_there_is_memory_to_be_had() -> None:
    assert procfs.available_memory() > 1 << 20
