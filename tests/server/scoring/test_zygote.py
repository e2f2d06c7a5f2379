"""The zygote: limits, what outlives a scoring, directories, and what a scoring is shut in with."""

from __future__ import annotations

from pathlib import Path

import pytest

from bird_server.scoring.job import failure_verdict
from bird_server.scoring.pool import ScorerPool
from bird_server.scoring.zygote import find_means, remove_tree
from server.scoring.support import FOREVER, SHARED_LOOP, job, left_in, message, sha256, wait_gone

ENDLESS_SQL = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c) SELECT count(*) FROM c"

IN_THE_GROUP = """
    import os
    pid = os.fork()
    if pid == 0:
        while True: pass
    assert 0, pid
"""
OUT_OF_THE_GROUP = """
    import os
    r, w = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.write(w, str(os.getpid()).encode())
        while True: pass
    assert 0, os.read(r, 99).decode()
"""
ORPHANED_AND_DEAF = """
    import os, signal
    r, w = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (1, 2, 15):
                signal.signal(number, signal.SIG_IGN)
            os.write(w, str(os.getpid()).encode())
            while True: pass
        os._exit(0)
    assert 0, os.read(r, 99).decode()
"""


@pytest.mark.parametrize(
    ("body", "pred"),
    [
        (FOREVER, "SELECT 1"),
        ("pass", ENDLESS_SQL),
        ("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass", "SELECT 1"),
        ("import re\nre.match('(a*)*b', 'a' * 64)", "SELECT 1"),
        ("import threading\nthreading.Thread(target=threading.Event().wait).start()", "SELECT 1"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", "SELECT 1"),
    ],
)
@SHARED_LOOP
async def test_a_runaway_is_killed_at_its_limit_and_gets_the_failure_record(
    pool: ScorerPool, database: Path, body: str, pred: str
) -> None:
    asked = job(database, body, pred=[pred], limit_s=0.4)
    result = await pool.score(asked)
    assert result.verdict == failure_verdict(asked.record)
    assert result.ended == "killed_at_limit"
    assert result.elapsed_ms >= 400


@pytest.mark.parametrize("body", [IN_THE_GROUP, OUT_OF_THE_GROUP, ORPHANED_AND_DEAF])
@SHARED_LOOP
async def test_what_a_test_has_forked_does_not_outlive_it(pool: ScorerPool, database: Path, body: str) -> None:
    result = await pool.score(job(database, body))
    wait_gone(int(message(result)))


@SHARED_LOOP
async def test_what_a_killed_scoring_has_forked_does_not_outlive_it(
    pool: ScorerPool, database: Path, scratch: Path
) -> None:
    body = ORPHANED_AND_DEAF.replace("assert 0, os.read(r, 99).decode()", "os.read(r, 99)\n    while True: pass")
    result = await pool.score(job(database, body, limit_s=0.5))
    assert result.ended == "killed_at_limit"
    assert left_in(scratch) == []


@SHARED_LOOP
async def test_scoring_leaves_the_database_and_the_scratch_folder_as_they_were(
    pool: ScorerPool, scratch: Path, database: Path
) -> None:
    before = sha256(database)
    body = """
        import os
        conn.execute("DELETE FROM t")
        conn.commit()
        open("left", "w").close()
        os.makedirs("a/b")
        os.chmod("a", 0)
    """
    for _ in range(3):
        assert (await pool.score(job(database, body, issue_sql=["DROP TABLE t"]))).verdict.status == "success"
    assert sha256(database) == before
    assert left_in(scratch) == []


@SHARED_LOOP
async def test_a_directory_with_many_files_is_removed_before_the_answer(
    pool: ScorerPool, scratch: Path, database: Path
) -> None:
    body = "for n in range(500): open(f'file{n}', 'w').close()"
    assert (await pool.score(job(database, body))).verdict.status == "success"
    assert left_in(scratch) == []


def test_a_small_tree_is_removed_at_once(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    assert remove_tree(str(root)) is None
    assert not root.exists()
    assert remove_tree(str(root)) is None


def test_what_shall_not_be_used_is_not(tmp_path: Path) -> None:
    (means,) = find_means([str(tmp_path)], ["namespaces", "landlock"]).values()
    assert (means.namespaces, means.landlock, means.bounded) == (False, False, False)
    assert list(tmp_path.iterdir()) == []
