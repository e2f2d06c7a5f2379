"""Out of reach: the source database, the parent, the network; and what stays open."""

from __future__ import annotations

from pathlib import Path

import pytest

from bird_server.scoring import landlock
from bird_server.scoring.pool import ScorerPool
from server.scoring.support import SHARED_LOOP, job, sha256

needs_landlock = pytest.mark.skipif(
    landlock.abi() < landlock.MINIMUM_ABI, reason="this kernel has no Landlock that can refuse a truncation"
)


@needs_landlock
@pytest.mark.parametrize(
    "attack", ["open({0!r}, 'r+b')", "open({0!r}, 'rb')", "os.truncate({0!r}, 0)", "os.unlink({0!r})"]
)
@SHARED_LOOP
async def test_the_source_is_out_of_reach(pool: ScorerPool, database: Path, attack: str) -> None:
    before = sha256(database)
    body = f"""
        import os
        try:
            {attack.format(str(database))}
        except PermissionError:
            pass
        else:
            assert 0
    """
    result = await pool.score(job(database, body))
    assert result.verdict.status == "success", result.detail
    assert sha256(database) == before


@needs_landlock
@SHARED_LOOP
async def test_sql_cannot_attach_the_source(pool: ScorerPool, database: Path) -> None:
    before = sha256(database)
    result = await pool.score(job(database, pred=[f"ATTACH '{database}' AS s", "DELETE FROM s.t"]))
    assert result.verdict.execution_error
    assert sha256(database) == before


@pytest.mark.skipif(landlock.abi() < 6, reason="this kernel's Landlock does not hold signals back")
@SHARED_LOOP
async def test_the_parent_cannot_be_signalled(pool: ScorerPool, database: Path) -> None:
    body = """
        import os
        try:
            os.kill(os.getppid(), 9)
        except PermissionError:
            pass
    """
    assert (await pool.score(job(database, body))).verdict.status == "success"
    assert pool.statistics().zygote_restarts == 0


@needs_landlock
@SHARED_LOOP
async def test_what_tests_need_stays_open(pool: ScorerPool, database: Path) -> None:
    body = """
        import os, subprocess, tempfile
        import decimal, email.mime.text, unittest.mock
        open("own.txt", "w").write("x")
        os.rename("own.txt", "tmp/moved.txt")
        os.truncate("tmp/moved.txt", 0)
        open("/dev/null", "w").write("x")
        assert os.urandom(4) and open("/proc/self/status").read()
        with tempfile.TemporaryDirectory() as folder:
            open(folder + "/x", "w").close()
        assert subprocess.run(["ls", "."], capture_output=True, check=True).stdout
        pid = os.fork()
        if pid == 0:
            os.pause() if hasattr(os, "pause") else __import__("signal").pause()
        os.kill(pid, 9)
        assert os.waitpid(pid, 0)[1] == 9
    """
    result = await pool.score(job(database, body))
    assert result.verdict.status == "success", result.detail
    assert result.detail["landlock"] is True


def test_a_temporary_folder_is_open_unless_the_source_is_in_it() -> None:
    assert landlock.open_folders(Path("/var/lib/data/db.sqlite")) == ["/tmp", "/var/tmp", "/dev/shm"]
    assert landlock.open_folders(Path("/tmp/data/db.sqlite").absolute())[-1] == "/dev/shm"
    assert "/tmp" not in landlock.open_folders(Path("/tmp/data/db.sqlite"))


def test_an_old_kernel_restricts_nothing_and_says_so(tmp_path: Path) -> None:
    assert landlock.restrict(tmp_path, tmp_path / "db.sqlite", version=2) is False
    assert landlock.restrict(tmp_path, tmp_path / "db.sqlite", version=0) is False
