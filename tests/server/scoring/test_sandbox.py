"""What a child has given up: environment, descriptors, signals, limits."""

from __future__ import annotations

import json
import resource
import signal
from pathlib import Path

import pytest

from bird_server.scoring import sandbox
from bird_server.scoring.pool import Means, ScorerPool
from server.scoring.support import SHARED_LOOP, job, message


@SHARED_LOOP
async def test_the_child_sees_none_of_the_services_environment(
    scratch: Path, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIRD_ENV_ADMIN_TOKEN", "secret")
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")
    async with ScorerPool(scratch=scratch) as pool:
        result = await pool.score(job(database, "import os\nassert 'secret' in str(dict(os.environ)), 'no secret'"))
    assert message(result) == "no secret"


@SHARED_LOOP
async def test_the_child_has_no_descriptor_but_its_database(pool: ScorerPool, database: Path) -> None:
    body = """
        import os
        fds = "/proc/self/fd/"
        assert 0, "|".join(os.readlink(fds + fd) for fd in os.listdir(fds) if os.path.lexists(fds + fd))
    """
    links = message(await pool.score(job(database, body))).split("|")
    assert [link for link in links if link != "/dev/null" and ".sqlite" not in link] == []


@SHARED_LOOP
async def test_the_child_has_its_own_session_limits_and_default_signals(pool: ScorerPool, database: Path) -> None:
    body = """
        import json, os, resource, signal
        assert 0, json.dumps({
            "leader": os.getsid(0) == os.getpid(),
            "limits": [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_CORE)],
            "term": int(signal.getsignal(signal.SIGTERM)),
            "tmp": os.environ["TMPDIR"] == os.getcwd() + "/tmp",
        })
    """
    told = json.loads(message(await pool.score(job(database, body))))
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    space = sandbox.ADDRESS_SPACE_BYTES if hard == resource.RLIM_INFINITY else min(hard, sandbox.ADDRESS_SPACE_BYTES)
    assert told == {"leader": True, "limits": [space, 0], "term": int(signal.SIG_DFL), "tmp": True}


def test_an_unknown_option_is_refused_by_the_kernel() -> None:
    assert sandbox.prctl(-1, 0) is False


@SHARED_LOOP
async def test_the_child_has_no_capabilities(pool: ScorerPool, database: Path) -> None:
    body = """
        told = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines())
        assert 0, [told[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb", "NoNewPrivs")]
    """
    assert message(await pool.score(job(database, body))) == str(["0" * 16] * 4 + ["1"])


@SHARED_LOOP
async def test_with_nothing_to_shut_it_in_a_scoring_says_so(
    scratch: Path, database: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with ScorerPool(scratch=scratch, without=frozenset({"namespaces", "landlock"})) as pool:
        result = await pool.score(job(database))
    assert (result.verdict.status, result.detail["isolation"]) == ("success", "none")
    assert "scorings_less_shut_in namespaces=False landlock=False" in caplog.text


@pytest.mark.parametrize("without", [(), ("namespaces",)])
@SHARED_LOOP
async def test_sqlites_temporary_files_are_in_the_private_directory(
    scratch: Path, database: Path, without: tuple[Means, ...]
) -> None:
    body = """
        import os
        conn.execute("PRAGMA temp_store = FILE")
        conn.execute("CREATE TEMP TABLE large AS SELECT zeroblob(20000000) AS x")
        links = []
        for name in os.listdir("/proc/self/fd"):
            try:
                links.append(os.readlink("/proc/self/fd/" + name))
            except FileNotFoundError:
                pass
        assert any(link.startswith(os.getcwd() + "/tmp/") for link in links), links
    """
    async with ScorerPool(scratch=scratch, without=frozenset(without)) as pool:
        result = await pool.score(job(database, body))
    assert result.verdict.status == "success", result.detail
