"""A view of one's own: what a scoring writes works, is seen by no other, and is gone with it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bird_server.scoring import footprint, namespaces
from bird_server.scoring.pool import Means, ScorerPool
from server.scoring.support import FOREVER, SHARED_LOOP, is_there, job, message, started_child, zygote_pid

HAS_NAMESPACES = namespaces.available("/dev/shm", in_memory=footprint.in_memory("/dev/shm"))

pytestmark = pytest.mark.skipif(not HAS_NAMESPACES, reason="this machine gives no process namespaces of its own")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["memory", "disk", "no landlock"])
async def pool(request: pytest.FixtureRequest, scratch: Path) -> AsyncIterator[ScorerPool]:
    place = None if request.param == "memory" else scratch
    without: frozenset[Means] = frozenset({"landlock"}) if request.param == "no landlock" else frozenset()
    async with ScorerPool(children=2, scratch=place, without=without) as started:
        yield started


@pytest.fixture
def name() -> str:
    return f"bird-test-{os.urandom(8).hex()}"


@pytest.mark.parametrize("folder", namespaces.TEMPORARY)
@pytest.mark.parametrize("statement", ["ATTACH '{0}' AS z; CREATE TABLE z.t(x)", "VACUUM INTO '{0}'"])
@SHARED_LOOP
async def test_sql_writes_to_a_temporary_folder_and_leaves_nothing(
    pool: ScorerPool, database: Path, name: str, folder: str, statement: str
) -> None:
    path = f"{folder}/{name}"
    for _ in range(2):  # the second would find the first one's file
        result = await pool.score(job(database, pred=statement.format(path).split("; ")))
        assert result.verdict.status == "success", result.detail
        assert not is_there(path)


@SHARED_LOOP
async def test_phases_of_one_scoring_share_their_folders_as_officially(
    pool: ScorerPool, database: Path, name: str
) -> None:
    attach = f"ATTACH '/tmp/{name}' AS z"
    result = await pool.score(
        job(
            database,
            f"assert conn.execute('SELECT 1 FROM pragma_database_list WHERE file LIKE \"%{name}\"').fetchall()",
            issue_sql=[attach, "CREATE TABLE z.seen(x)", "no SQL"],
            pred=[attach, "INSERT INTO z.seen VALUES (1)"],
        )
    )
    assert result.verdict.status == "success", result.detail


@SHARED_LOOP
async def test_temporary_folders_are_empty_but_for_what_is_ones_own(pool: ScorerPool, database: Path) -> None:
    body = """
        import os, sys
        known = (os.getcwd(), sys.prefix, *filter(None, sys.path))  # the code itself may lie in a temporary folder
        seen = [os.path.join(folder, name) for top in ("/tmp", "/var/tmp", "/dev/shm")
                for folder, _, names in os.walk(top) for name in names]
        assert 0, [path for path in seen if not path.startswith(known)]
    """
    assert message(await pool.score(job(database, body))) == "[]"


@SHARED_LOOP
async def test_a_scoring_does_not_reach_into_the_one_beside_it(pool: ScorerPool, database: Path) -> None:
    body = """
        import os
        its = "/proc/{pid}/"
        links = ["cwd", "root", "exe", *("fd/" + name for name in os.listdir(its + "fd"))]
        for link in links:
            try:
                os.stat(its + link)
            except PermissionError:
                pass
            else:
                assert 0, link
    """
    victim = asyncio.create_task(pool.score(job(database, FOREVER)))
    pid = await started_child(zygote_pid())
    while not await asyncio.to_thread(in_its_own_view, pid):
        pass
    result = await pool.score(job(database, body.format(pid=pid)))
    victim.cancel()
    with pytest.raises(asyncio.CancelledError):
        await victim
    assert result.verdict.status == "success", result.detail


def in_its_own_view(pid: int) -> bool:
    return Path(f"/proc/{pid}/ns/mnt").readlink() != Path("/proc/self/ns/mnt").readlink()


@SHARED_LOOP
async def test_nothing_else_can_be_written(pool: ScorerPool, database: Path) -> None:
    folder = Path(__file__).parent
    body = f"""
        import os
        for path in ({str(folder)!r} + "/written", "/written", "/etc/written"):
            try:
                open(path, "w")
            except OSError:
                pass
            else:
                assert 0, path
        open("/dev/null", "w").write("x")
    """
    result = await pool.score(job(database, body))
    assert result.verdict.status == "success", result.detail
    assert result.detail["isolation"] in ("namespaces, landlock", "namespaces, read-only")


@SHARED_LOOP
async def test_what_covers_the_machines_folders_cannot_be_taken_away(pool: ScorerPool, database: Path) -> None:
    body = """
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.umount2(b"/tmp", 2) != 0
        if libc.unshare(0x10020000) == 0:  # one's own namespaces once more, in which one has capabilities
            assert libc.umount2(b"/tmp", 2) != 0
            assert libc.mount(b"none", b"/", None, ctypes.c_ulong(32 | 4096), None) != 0
    """
    result = await pool.score(job(database, body))
    assert result.verdict.status == "success", result.detail


@SHARED_LOOP
async def test_a_test_finds_its_user_threads_and_processes_as_ever(pool: ScorerPool, database: Path) -> None:
    body = f"""
        import multiprocessing, os, shutil, sqlite3, tempfile, threading
        assert (os.getuid(), os.getgid()) == ({os.getuid()}, {os.getgid()})
        assert os.getcwd() == os.path.realpath(".") and os.path.samefile(".", os.getcwd())
        assert multiprocessing.get_context("fork").Lock().acquire()
        assert open("/proc/self/status").read()
        with tempfile.NamedTemporaryFile(dir="/tmp") as one, tempfile.TemporaryFile() as two:
            assert one.write(b"x") and two.write(b"x")
        shutil.move(shutil.copy(db_path, "/tmp/copy"), "/dev/shm/copy")
        assert sqlite3.connect("/dev/shm/copy").execute("SELECT count(*) FROM t").fetchone() == (3,)
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()
    """
    result = await pool.score(job(database, body))
    assert result.verdict.status == "success", result.detail


async def test_a_python_in_a_temporary_folder_can_still_be_read_and_not_written(
    scratch: Path, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "library"
    folder.mkdir()
    (folder / "kept_module.py").write_text("value = 5\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    body = f"""
        import kept_module
        assert kept_module.value == 5
        try:
            open({str(folder)!r} + "/written", "w")
        except OSError:
            pass
        else:
            assert 0
    """
    async with ScorerPool(scratch=scratch) as pool:
        result = await pool.score(job(database, body))
    assert result.verdict.status == "success", result.detail


def test_trying_leaves_nothing_behind(tmp_path: Path) -> None:
    assert namespaces.available(str(tmp_path), in_memory=False)
    assert namespaces.available(str(tmp_path), in_memory=True)
    assert list(tmp_path.iterdir()) == []
