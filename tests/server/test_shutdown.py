"""SIGTERM ends the server process in any case, also when a statement is in a row that nothing can interrupt."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from bird_env import Client
from bird_env.errors import BirdEnvError
from bird_server.datadir import DataDirectory
from bird_server.server_process import ServerProcess
from bird_world import populate

#: One row of a hundred instr() over half a megabyte: minutes, without a jump in between.
UNSTOPPABLE = (
    "WITH d(x, y) AS MATERIALIZED (SELECT printf('%.*c', 560000, 'a'), printf('%.*c', 400000, 'a') || 'b') SELECT "
    + " + ".join(f"instr(x, y || {number})" for number in range(100))
    + " FROM d"
)


def processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) / os.sysconf("SC_CLK_TCK")


def test_a_statement_that_cannot_be_ended_does_not_keep_the_server_from_ending(tmp_path: Path) -> None:
    populate(tmp_path)
    failed = list[BirdEnvError]()
    with ServerProcess(tmp_path) as server, Client(server.url, retry_for_s=0) as client:
        trajectory = client.trajectory(database="shop")
        trajectory.reset()
        replicas = DataDirectory(tmp_path).store / "replicas"

        def run() -> None:
            try:
                trajectory.execute(UNSTOPPABLE)
            except BirdEnvError as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        looks = threading.Event()
        begin = processor_s(server.pid)
        while processor_s(server.pid) < begin + 1:
            looks.wait(0.01)
        assert server.stop() == 0
        thread.join(30)
        assert not server.ready_file.exists()
        assert "left behind" in server.log_path.read_text()
        assert "instr(x, y || 0)" in server.log_path.read_text()
    assert len(failed) == 1
    assert len(list(replicas.glob("*.db"))) == 1, "the process ended before the statement did"
    with ServerProcess(tmp_path) as server, Client(server.url) as client:
        assert list(replicas.iterdir()) == []
        assert client.get_trajectory(trajectory.trajectory_id).end_reason == "server_restarted"
