"""Out of reach where there are no namespaces: the source database, other scorings, the parent; and what stays open."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bird_server.scoring import landlock
from bird_server.scoring.namespaces import TEMPORARY
from bird_server.scoring.pool import ScorerPool
from server.scoring.support import SHARED_LOOP, is_there, job, make_database, sha256


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(scratch: Path) -> AsyncIterator[ScorerPool]:
    async with ScorerPool(scratch=scratch, without=frozenset({"namespaces"})) as started:
        yield started


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
    assert result.detail["isolation"] == "landlock"


@needs_landlock
@pytest.mark.parametrize("folder", TEMPORARY)
@SHARED_LOOP
async def test_a_shared_temporary_folder_cannot_be_written(pool: ScorerPool, database: Path, folder: str) -> None:
    path = f"{folder}/bird-test-{os.urandom(8).hex()}"
    body = f"""
        try:
            open({path!r}, "w")
        except PermissionError:
            pass
        else:
            assert 0
    """
    result = await pool.score(job(database, body, pred=["SELECT 1", f"ATTACH '{path}' AS z"]))
    assert result.verdict.execution_error
    assert (await pool.score(job(database, body))).verdict.status == "success"
    assert not is_there(path)


@needs_landlock
@pytest.mark.parametrize("place", [Path("/dev/shm"), None])
@SHARED_LOOP
async def test_what_lies_beside_a_private_directory_is_out_of_reach(
    pool: ScorerPool, database: Path, scratch: Path, place: Path | None
) -> None:
    folder = tempfile.mkdtemp(prefix="bird-test-", dir=place or scratch)
    neighbour = make_database(Path(folder, "neighbour.sqlite"))
    try:
        body = f"""
            import os
            for access in (os.listdir, lambda folder: open(folder + "/neighbour.sqlite", "rb")):
                try:
                    access({folder!r})
                except PermissionError:
                    pass
                else:
                    assert 0
        """
        result = await pool.score(job(database, body))
        assert result.verdict.status == "success", result.detail
        before = sha256(neighbour)
        result = await pool.score(job(database, pred=[f"ATTACH '{neighbour}' AS n", "DELETE FROM n.t"]))
        assert result.verdict.execution_error
        assert sha256(neighbour) == before
    finally:
        shutil.rmtree(folder)


def test_an_old_kernel_restricts_nothing_and_says_so(tmp_path: Path) -> None:
    assert landlock.restrict([str(tmp_path)], version=2) is False
    assert landlock.restrict([str(tmp_path)], version=0) is False
