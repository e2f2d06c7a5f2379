"""A small server that keeps the wire's promises, as an ASGI application over the stdlib's sqlite3.

It exists so that the client is tested against the contract and not against one implementation of it; everything is in
memory and on one event loop. `FakeServer.calls` counts what was asked, `executed` what was run.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, unquote

from pydantic import ValidationError

from bird_env.errors import (
    BirdEnvError,
    EpisodeOver,
    InvalidRequest,
    KeyReused,
    NotFound,
    NothingSubmitted,
    PreprocessFailed,
    Problem,
    StaleEpoch,
    StepConflict,
    TrajectoryExists,
    TrajectoryGone,
    UnknownDatabase,
    UnknownTask,
    UnknownTrajectory,
)
from bird_env.models import CreateScore, CreateTrajectory, ResetRequest, ScoreRequest, StepRequest
from bird_env.testing import World
from bird_env.testing.in_process import Message, Receive, Send
from bird_env.values import encode_rows

WORLD = World(database="shop", task_id="shop_1", right=["SELECT id FROM orders"], wrong=["SELECT 1"])
TASKS = {"shop_1": "shop", "shop_2": "shop", "ship_1": "ship"}
SCRIPT = "CREATE TABLE orders(id INTEGER PRIMARY KEY); INSERT INTO orders VALUES (1), (2)"
STATUS = {NotFound: 404, InvalidRequest: 422, KeyReused: 422, PreprocessFailed: 422, TrajectoryGone: 410}
MAX_STEPS = 30


@dataclass
class Kept:
    """A trajectory as the fake keeps it."""

    request: CreateTrajectory
    created_at: str
    database: sqlite3.Connection
    epoch: int = 0
    steps: dict[tuple[int, int], tuple[bytes, dict[str, Any]]] = field(default_factory=dict)
    next_step_index: int = 0
    over: bool = False
    ended: bool = False
    score: dict[str, Any] | None = None


class FakeServer:
    """An ASGI application; see the module."""

    def __init__(self) -> None:
        self.trajectories: dict[str, Kept] = {}
        self.calls: Counter[str] = Counter()
        self.executed: list[str] = []
        self.keys: list[str] = []
        self.served = 0

    def close(self) -> None:
        for kept in self.trajectories.values():
            kept.database.close()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            self.close()
            await send({"type": "lifespan.shutdown.complete"})
            return
        body = b""
        while True:
            message: Message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.keys += [headers[name] for name in ("idempotency-key",) if name in headers]
        query = {name: values[0] for name, values in parse_qs(scope["query_string"].decode()).items()}
        path = [unquote(part) for part in scope["raw_path"].decode().removeprefix("/prefix").strip("/").split("/")]
        try:
            status, document = self.answer(scope["method"], path, query, body)
        except BirdEnvError as error:
            status, document = problem(error)
        except ValidationError as error:
            status, document = problem(InvalidRequest(str(error)))
        kind = b"application/problem+json" if status >= 400 else b"application/json"
        content = b"" if document is None else json.dumps(document).encode("ascii")
        start: list[tuple[bytes, bytes]] = [(b"content-type", kind)]
        start += [(b"x-request-id", headers.get("x-request-id", "").encode())]
        await send({"type": "http.response.start", "status": status, "headers": start})
        await send({"type": "http.response.body", "body": content})

    def answer(self, method: str, path: list[str], query: dict[str, str], body: bytes) -> tuple[int, Any]:
        self.calls[f"{method} {'/'.join(part for part in path if part not in self.trajectories)}"] += 1
        match (method, *path):
            case ("GET", "healthz" | "readyz"):
                return 200, {"status": "ok"}
            case ("GET", "version"):
                versions = {"python": "3", "engine_sqlite": sqlite3.sqlite_version, "scorer_sqlite": "3"}
                return 200, {"version": "fake", **versions}
            case ("GET", "v1", "databases"):
                return 200, page([database(name) for name in ("ship", "shop")], query)
            case ("GET", "v1", "databases", name, "schema"):
                if name not in ("ship", "shop"):
                    raise UnknownDatabase(name)
                return 200, {
                    "database": name,
                    "sha256": "0",
                    "text": SCRIPT,
                    "tables": [{"name": "orders", "columns": []}],
                }
            case ("GET", "v1", "tasks"):
                found = [name for name, where in TASKS.items() if query.get("database", where) == where]
                return 200, page([task(name) for name in sorted(found)], query)
            case ("GET", "v1", "tasks", *rest):
                return 200, task("/".join(rest))
            case ("GET", "v1", "tools"):
                return 200, page([tool(name) for name in ("execute_sql", "submit_solution")], query)
            case ("GET", "v1", "pool"):
                live = sum(not kept.ended and not kept.over for kept in self.trajectories.values())
                counts = {
                    "live": live,
                    "capacity": 9,
                    "queued": 0,
                    "served": self.served,
                    "disk_bytes": 0,
                    "scoring": 0,
                }
                return 200, {**counts, "templates": []}
            case ("POST", "v1", "scores"):
                request = read(CreateScore, body)
                return 200, score(request.task_id, request.sql)
            case (_, "v1", "trajectories", *rest):
                return self.trajectory(method, rest, query, body)
        raise NotFound("/".join(path))

    def trajectory(self, method: str, rest: list[str], query: dict[str, str], body: bytes) -> tuple[int, Any]:
        match (method, *rest):
            case ("POST",):
                return 201, self.create(read(CreateTrajectory, body))
            case ("GET",):
                found = [self.view(name) for name in self.trajectories]
                for filtered in ("run_id", "group_id", "status"):
                    found = [each for each in found if query.get(filtered, each[filtered]) == each[filtered]]
                return 200, page(found, query)
            case ("DELETE",):
                ended = [kept for kept in self.trajectories.values() if kept.request.run_id == query["run_id"]]
                ended = [kept for kept in ended if not kept.ended]
                for kept in ended:
                    kept.ended = True
                return 200, {"run_id": query["run_id"], "ended": len(ended)}
            case ("DELETE", name):
                if name in self.trajectories:
                    self.trajectories[name].ended = True
                return 204, None
        name, *action = rest
        if name not in self.trajectories:
            raise UnknownTrajectory(name)
        kept = self.trajectories[name]
        match (method, *action):
            case ("GET",):
                return 200, self.view(name)
            case ("GET", "steps"):
                steps = sorted(kept.steps.items())
                return 200, page([recorded(key, sent, result) for key, (sent, result) in steps], query)
        if kept.ended:
            raise TrajectoryGone(end_reason="deleted")
        match (method, *action):
            case ("POST", "steps"):
                return 200, self.step(name, kept, read(StepRequest, body), body)
            case ("POST", "reset"):
                return 200, self.reset(name, kept, read(ResetRequest, body or b"{}"))
            case ("POST", "score"):
                sql = read(ScoreRequest, body or b"{}").sql
                if sql is None and kept.score is None:
                    raise NothingSubmitted()
                return 200, kept.score if sql is None else score(kept.request.task_id or "", sql)
            case ("POST", "heartbeat"):
                return 200, {"trajectory_id": name, "lease_expires_at": later()}
        raise NotFound("/".join(rest))

    def create(self, request: CreateTrajectory) -> dict[str, Any]:
        name = request.trajectory_id or uuid.uuid4().hex
        kept = self.trajectories.get(name)
        if kept is None:
            where = request.database
            if (request.task_id is None) == (where is None):
                raise InvalidRequest("Name either `task_id` or `database`.")
            if request.task_id is not None:
                where = task(request.task_id)["database"]
            if where not in ("ship", "shop"):
                raise UnknownDatabase(str(where))
            kept = Kept(request, datetime.now(UTC).isoformat(), self.replica(request))
            self.trajectories[name] = kept
        if kept.request != request:
            raise TrajectoryExists(name)
        if kept.ended:
            raise TrajectoryGone(end_reason="deleted")
        return self.first(name)

    def replica(self, request: CreateTrajectory) -> sqlite3.Connection:
        self.served += 1
        made = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        made.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
        try:
            made.executescript(SCRIPT)
            for sql in request.preprocess_sql or []:
                made.execute(sql)
        except sqlite3.Error as error:
            made.close()
            raise PreprocessFailed(str(error)) from error
        return made

    def step(self, name: str, kept: Kept, request: StepRequest, body: bytes) -> dict[str, Any]:
        if request.epoch != kept.epoch:
            raise StaleEpoch()
        key = (request.epoch, request.step_index)
        if key in kept.steps:
            sent, result = kept.steps[key]
            if sent != body:
                raise KeyReused()
            return result
        if kept.over:
            raise EpisodeOver()
        if request.step_index != kept.next_step_index:
            raise StepConflict(expected_step_index=kept.next_step_index)
        result = {"trajectory_id": name, "epoch": key[0], "step_index": key[1], "elapsed_ms": 0.0}
        if request.action.type == "submit":
            kept.score = score(kept.request.task_id or "", request.action.sql)
            result |= {"observation": {"text": "", "format": "table"}, "outcome": "submitted", "terminated": True}
            result |= {"reward": kept.score["reward"], "score": kept.score}
            kept.over = True
        else:
            result |= self.run(kept, request.action.sql)
            if request.step_index + 1 == (kept.request.limits.max_steps or MAX_STEPS):
                result |= {"truncated": True, "truncation_reason": "max_steps"}
                kept.over = True
        kept.next_step_index += 1
        kept.steps[key] = (body, result)
        return result

    def run(self, kept: Kept, sql: str) -> dict[str, Any]:
        self.executed.append(sql)
        observation: dict[str, Any] = {"text": "", "format": "table"}
        try:
            rows: list[tuple[Any, ...]] = []
            columns: list[str] = []
            for statement in sql.split(";"):
                cursor = kept.database.execute(statement)
                rows = cursor.fetchall()
                columns = [each[0] for each in cursor.description or []]
        except (sqlite3.Error, UnicodeEncodeError) as error:
            message = str(error).encode("ascii", "backslashreplace").decode()
            return {"observation": {**observation, "error": {"message": message}}, "outcome": "sql_error"}
        result = {"columns": columns, "rows": encode_rows(rows), "rows_seen": len(rows)}
        return {"observation": {**observation, **result}, "outcome": "ok"}

    def reset(self, name: str, kept: Kept, request: ResetRequest) -> dict[str, Any]:
        if request.epoch == kept.epoch:
            kept.database.close()
            kept.database = self.replica(kept.request)
            kept.epoch, kept.next_step_index, kept.over, kept.score = kept.epoch + 1, 0, False, None
        elif request.epoch != kept.epoch - 1:
            raise StaleEpoch()
        return self.first(name)

    def first(self, name: str) -> dict[str, Any]:
        messages = [{"role": "user", "content": "Mend it."}]
        first = {"text": "Mend it.", "schema_text": SCRIPT, "messages": messages, "prompt_template": "fake@1"}
        return {**self.view(name), "observation": first}

    def view(self, name: str) -> dict[str, Any]:
        kept = self.trajectories[name]
        asked = kept.request.model_dump(include={"run_id", "group_id", "task_id", "metadata", "seed"})
        return {
            **asked,
            "trajectory_id": name,
            "database": kept.request.database or TASKS[kept.request.task_id or ""],
            "template_sha256": "0",
            "status": "ended" if kept.ended or kept.over else "live",
            "epoch": kept.epoch,
            "next_step_index": kept.next_step_index,
            "max_steps": kept.request.limits.max_steps or MAX_STEPS,
            "limits": {},
            "lease_s": kept.request.lease_s or 1800.0,
            "created_at": kept.created_at,
            "lease_expires_at": None if kept.ended else later(),
            "lifetime_expires_at": later(),
        }


def read(model: type[Any], body: bytes) -> Any:
    return model.model_validate(json.loads(body))


def later() -> str:
    return (datetime.now(UTC) + timedelta(hours=1)).isoformat()


def page(items: list[Any], query: dict[str, str]) -> dict[str, Any]:
    """Tokens hold what an address cannot: they must come back encoded."""
    start = int(query.get("page_token", "0 +&=/?").split(" ")[0])
    end = start + int(query.get("limit", "100"))
    return {"items": items[start:end], "next_page_token": f"{end} +&=/?" if end < len(items) else None}


def database(name: str) -> dict[str, Any]:
    sizes = {"size_bytes": 1, "page_size_bytes": 1, "tables": 1}
    return {"database": name, "sha256": "0", **sizes, "imported_at": later()}


def tool(name: str) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    return {"function": {"name": name, "description": "", "parameters": parameters}}


def task(name: str) -> dict[str, Any]:
    if name not in TASKS:
        raise UnknownTask(name)
    return {"task_id": name, "database": TASKS[name], "issue": "Mend it.", "scorable": True, "digest": "0"}


def score(name: str, sql: list[str]) -> dict[str, Any]:
    task(name)
    right = sql == WORLD.right
    return {"task_id": name, "status": "success" if right else "failed", "reward": 1.0 if right else 0.0}


def recorded(key: tuple[int, int], sent: bytes, result: dict[str, Any]) -> dict[str, Any]:
    request = json.loads(sent)
    kept = {"action": request["action"], "policy_version": request.get("policy_version"), "created_at": later()}
    return {"epoch": key[0], "step_index": key[1], "result": result, **kept}


def problem(error: BirdEnvError) -> tuple[int, dict[str, Any]]:
    status = next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 409)
    document = Problem(
        title=error.title,
        status=status,
        detail=error.detail,
        code=error.code,
        retryable=error.retryable,
        hint=error.hint,
    )
    return status, {**document.model_dump(), **error.fields}
