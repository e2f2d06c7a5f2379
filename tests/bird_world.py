"""A small server for tests: one database, a few tasks, a clock that is moved by hand, no sockets."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from bird_env.tasks import Task
from bird_server.app import create_app
from bird_server.catalogue import Catalogue
from bird_server.clock import FakeClock
from bird_server.database_files import DatabaseFile
from bird_server.datadir import DataDirectory
from bird_server.importing import import_database
from bird_server.settings import Settings
from bird_server.state import State
from bird_snapshots.template import Template, TemplateStore

SCRIPT = """
CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, b INTEGER);
INSERT INTO t VALUES (1, 'x', 10), (2, 'y', 20), (3, 'z', NULL);
CREATE TABLE child(id INTEGER PRIMARY KEY, t_id INTEGER REFERENCES t(id) DEFERRABLE INITIALLY DEFERRED);
CREATE VIEW big AS SELECT * FROM t WHERE b > 15;
"""

SELECT_1 = {"type": "execute_sql", "sql": "SELECT 1"}
GOLD = "SELECT a FROM t WHERE b > 15"
TASKS: list[dict[str, Any]] = [
    {
        "instance_id": "read_1",
        "selected_database": "shop",
        "category": "Query",
        "query": "I want the names of big ones, I get the small ones.",
        "preprocess_sql": [],
        "issue_sql": ["SELECT a FROM t WHERE b < 15"],
        "sol_sql": [GOLD],
        "clean_up_sql": [],
        "test_cases": [],
    },
    {
        "instance_id": "write_1",
        "selected_database": "shop",
        "category": "Management",
        "query": "Every b must be doubled.",
        "preprocess_sql": ["CREATE TABLE log(x)", "INSERT INTO log VALUES ('made first')"],
        "issue_sql": ["UPDATE t SET b = b + 2"],
        "sol_sql": ["UPDATE t SET b = b * 2"],
        "clean_up_sql": [],
        "test_cases": [
            "def test_case(pred_sqls, sol_sqls, db_path, conn, conditions):\n"
            "    assert conn.execute('SELECT sum(b) FROM t').fetchone() == (60,), 'SECRET-OF-THE-TEST'\n"
        ],
    },
    {
        "instance_id": "bad_preprocess",
        "selected_database": "shop",
        "query": "?",
        "preprocess_sql": ["CREATE TABLE ok(x)", "INSERT INTO nowhere VALUES (1)"],
        "issue_sql": [],
        "sol_sql": ["SELECT 1"],
        "test_cases": [],
    },
    {"instance_id": "no_gold", "selected_database": "shop", "query": "?", "preprocess_sql": [], "issue_sql": []},
]


@dataclass
class World:
    """A running server, and what a test wants to reach of it."""

    app: FastAPI
    http: httpx.AsyncClient
    clock: FakeClock
    template: Template
    root: Path
    steps: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def state(self) -> State:
        state: State = self.app.state.parts
        return state

    async def create(self, trajectory_id: str = "t1", **body: Any) -> dict[str, Any]:
        if "task_id" not in body and "database" not in body:
            body["database"] = "shop"
        response = await self.post("/v1/trajectories", {"trajectory_id": trajectory_id, **body})
        assert response.status_code == 201, response.text
        self.steps[trajectory_id] = (0, 0)
        return _loads(response)

    async def post(self, path: str, body: Any = None, **headers: str) -> httpx.Response:
        content = json.dumps(body).encode("ascii") if body is not None else b""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.http.post(path, content=content, headers={"content-type": "application/json", **named})

    async def send(
        self, trajectory_id: str, epoch: int, index: int, action: dict[str, Any], **more: Any
    ) -> httpx.Response:
        body = {"epoch": epoch, "step_index": index, "action": action, **more}
        return await self.post(f"/v1/trajectories/{trajectory_id}/steps", body)

    async def sql(self, sql: str, trajectory_id: str = "t1") -> dict[str, Any]:
        """The next step, which must be answered with 200."""
        epoch, index = self.steps[trajectory_id]
        response = await self.send(trajectory_id, epoch, index, {"type": "execute_sql", "sql": sql})
        assert response.status_code == 200, response.text
        self.steps[trajectory_id] = (epoch, index + 1)
        return _loads(response)

    async def submit(self, sql: list[str], trajectory_id: str = "t1") -> dict[str, Any]:
        epoch, index = self.steps[trajectory_id]
        response = await self.send(trajectory_id, epoch, index, {"type": "submit", "sql": sql})
        assert response.status_code == 200, response.text
        self.steps[trajectory_id] = (epoch, index + 1)
        return _loads(response)


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem document of a reply, which must be this one."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["code"] == code
    return body


def _loads(response: httpx.Response) -> dict[str, Any]:
    """httpx's own `json()` would refuse a lone surrogate."""
    body: dict[str, Any] = json.loads(response.text)
    return body


def add_database(root: Path, name: str, script: str) -> Template:
    """A database that a script makes, imported into a data directory as a command beside a server would."""
    source = root / f"{name}.sqlite"
    source.unlink(missing_ok=True)
    with closing(sqlite3.connect(source)) as connection:
        connection.executescript(script)
    templates = TemplateStore(DataDirectory(root).store)
    with Catalogue(root) as catalogue:
        database = import_database(DatabaseFile(name, source), catalogue, templates)
    return templates.get(database.digest)


def populate(root: Path) -> Template:
    """A data directory with the database `shop` and the tasks above."""
    root.mkdir(parents=True, exist_ok=True)
    template = add_database(root, "shop", SCRIPT)
    with Catalogue(root) as catalogue:
        catalogue.add_tasks([Task.from_record(record) for record in TASKS], source="test")
    return template


@asynccontextmanager
async def serving(root: Path, **settings: Any) -> AsyncGenerator[World]:
    """A populated server in this process, started and stopped as uvicorn would."""
    template = populate(root)
    clock = FakeClock()
    app = create_app(Settings(data=root, reap_every_s=3_600, sql_threads=2, **settings), clock=clock)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60) as http:
            yield World(app, http, clock, template, root)
