"""What a child has given up: environment, descriptors, signals, limits."""

from __future__ import annotations

import json
import resource
import signal
from pathlib import Path

import pytest

from bird_server.scoring import sandbox
from bird_server.scoring.pool import ScorerPool
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
async def test_the_child_has_no_descriptor_but_its_database_and_the_pipe(pool: ScorerPool, database: Path) -> None:
    body = """
        import os
        fds = "/proc/self/fd/"
        assert 0, "|".join(os.readlink(fds + fd) for fd in os.listdir(fds) if os.path.lexists(fds + fd))
    """
    links = message(await pool.score(job(database, body))).split("|")
    others = [link for link in links if link != "/dev/null" and not link.startswith("pipe:") and ".sqlite" not in link]
    assert others == []
    assert sum(link.startswith("pipe:") for link in links) == 1


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
