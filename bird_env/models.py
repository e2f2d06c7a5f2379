"""The wire: every request and reply of the service as frozen pydantic models, shared by server and clients.

Every number carries its unit in its name (`_s`, `_ms`, `_bytes`, `_mb`, `_chars`). Requests refuse unknown fields, so
that a misspelt one is an error and not a silence; replies allow them, so that a newer server does not break an older
client. Values of SQLite travel as `bird_env.values` describes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, WithJsonSchema

from bird_env.values import Json, Value, decode_rows


def _any_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a string")
    return value


#: Text that a policy wrote. JSON may spell a lone surrogate, which is no UTF-8: it must reach SQLite and fail there,
#: as an observation, instead of being refused as a bad request; so it is not validated as Unicode.
SqlText = Annotated[str, PlainValidator(_any_text), WithJsonSchema({"type": "string"})]


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


#: One statement or several; a string alone is a list of one. Elements are not split at semicolons.
SqlList = Annotated[list[SqlText], BeforeValidator(_as_list)]

#: An id that a client chooses: it becomes part of addresses and of log lines.
ClientId = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:@=+~-]*$")]

T = TypeVar("T")

#: Counters of the wire stay within what every JSON reader keeps exactly.
MAX_COUNT = 2**53 - 1

#: Bytes of a trajectory's metadata as JSON: it is kept with the trajectory and returned with it.
MAX_METADATA_BYTES = 65_536


def _plain_metadata(value: dict[str, Any]) -> dict[str, Any]:
    try:
        size = len(json.dumps(value, allow_nan=False))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"metadata must be plain JSON: {error}") from error
    if size > MAX_METADATA_BYTES:
        raise ValueError(f"metadata is {size} bytes as JSON; the limit is {MAX_METADATA_BYTES}")
    return value


#: Whatever the client wants back with its trajectory.
Metadata = Annotated[dict[str, Any], AfterValidator(_plain_metadata)]


class Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Reply(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")


class ObservationFormat(StrEnum):
    """How a result is written into `observation.text`, what a policy reads."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    REPR = "repr"


class Outcome(StrEnum):
    """What became of a step. Only the policy's doing: a fault of ours is a problem document, never an outcome."""

    OK = "ok"
    SQL_ERROR = "sql_error"
    TIMEOUT = "timeout"
    LIMIT = "limit"
    QUOTA = "quota"
    SUBMITTED = "submitted"


class TruncationReason(StrEnum):
    MAX_STEPS = "max_steps"


class EndReason(StrEnum):
    """Why a trajectory takes no more steps."""

    SUBMITTED = "submitted"
    MAX_STEPS = "max_steps"
    DELETED = "deleted"
    LEASE_EXPIRED = "lease_expired"
    LIFETIME = "lifetime"
    SERVER_RESTARTED = "server_restarted"
    FAULT = "fault"


class Limits(Request):
    """What a step and a trajectory may use. Left out, a limit is the server's; larger than that, it is cut to it."""

    sql_cpu_s: float | None = Field(
        default=None, gt=0, description="Processor time of one step; beyond it: outcome `timeout`."
    )
    sql_wall_s: float | None = Field(default=None, gt=0, description="Wall-clock backstop of one step.")
    rows: int | None = Field(default=None, ge=0, description="Rows of a result that are returned; the rest is counted.")
    result_bytes: int | None = Field(default=None, ge=1_000, description="Bytes of a typed result that are returned.")
    text_chars: int | None = Field(default=None, ge=100, description="Characters of `observation.text`.")
    value_bytes: int | None = Field(default=None, ge=1_000, description="Longest value SQLite may make.")
    wal_mb: float | None = Field(default=None, gt=0, description="Megabytes that a trajectory may write.")
    temp_mb: float | None = Field(default=None, gt=0, description="Megabytes of temporary files of one step.")
    max_steps: int | None = Field(
        default=None, ge=1, description="Steps within one epoch; the last one is `truncated`."
    )
    schema_chars: int | None = Field(default=None, ge=200, description="Characters of schema in the first observation.")


class CreateTrajectory(Request):
    """`POST /v1/trajectories`: a task's database, or a database by name, as a private replica."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"trajectory_id": "run7-task12-0", "run_id": "run7", "group_id": "run7-task12", "task_id": "orders_1"},
                {"database": "shop", "preprocess_sql": ["CREATE TABLE note(x)"], "lease_s": 600},
            ]
        },
    )

    trajectory_id: ClientId | None = Field(
        default=None, description="Chosen by the client; made by the server if left out."
    )
    run_id: ClientId | None = Field(
        default=None, description="The training run: `DELETE /v1/trajectories?run_id=` ends it."
    )
    group_id: ClientId | None = Field(default=None, description="The group of rollouts that are compared, as in GRPO.")
    task_id: str | None = Field(default=None, min_length=1, description="A task; or else `database`.")
    database: str | None = Field(default=None, min_length=1, description="A database by name, when there is no task.")
    preprocess_sql: SqlList | None = Field(default=None, description="Statements run first; only with `database`.")
    limits: Limits = Limits()
    lease_s: float | None = Field(default=None, gt=0, description="Seconds without a call after which it is ended.")
    metadata: Metadata = Field(default_factory=dict, description="Kept and returned, never read; at most 64 KiB.")
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63, description="Kept and returned with the trajectory.")
    prompt: str | None = Field(default=None, description="Prompt template of the first observation, such as `plain`.")
    format: ObservationFormat | None = Field(default=None, description="Format of every observation's text.")


class ChatMessage(Reply):
    role: Literal["system", "user", "assistant", "tool"]
    content: str


class PreprocessError(Reply):
    """A task's preprocess_sql stopped here; as the official evaluator has it, what came before stands."""

    statement_index: int
    message: str


class FirstObservation(Reply):
    """What a policy sees before its first action; `preprocess_error` is for whoever keeps the tasks."""

    text: str
    issue: str | None = None
    schema_text: str
    schema_truncated_chars: int = 0
    issue_sql: list[SqlText] = Field(default_factory=list)
    messages: list[ChatMessage]
    prompt_template: str
    preprocess_error: PreprocessError | None = None


class TrajectoryStatus(StrEnum):
    LIVE = "live"
    ENDED = "ended"


class Trajectory(Reply):
    """One rollout as it stands."""

    trajectory_id: str
    run_id: str | None = None
    group_id: str | None = None
    task_id: str | None = None
    database: str
    template_sha256: str
    status: TrajectoryStatus
    end_reason: EndReason | None = None
    epoch: int
    next_step_index: int
    max_steps: int
    limits: dict[str, int | float]
    lease_s: float
    created_at: datetime
    lease_expires_at: datetime | None
    lifetime_expires_at: datetime
    ended_at: datetime | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    seed: int | None = None
    reward: float | None = None


class CreatedTrajectory(Trajectory):
    """The reply to a create or a reset: the trajectory and its first observation."""

    observation: FirstObservation


class ExecuteSql(Request):
    type: Literal["execute_sql"] = "execute_sql"
    sql: SqlText = Field(description="One text; it may hold several statements, which run in order.")


class Submit(Request):
    type: Literal["submit"] = "submit"
    sql: SqlList = Field(description="The solution: a list of statements, each given to the scorer as it is.")


Action = Annotated[ExecuteSql | Submit, Field(discriminator="type")]


#: Which weights acted: a number or a short name.
PolicyVersion = Annotated[int, Field(ge=-MAX_COUNT, le=MAX_COUNT)] | Annotated[str, Field(max_length=200)]


class StepRequest(Request):
    """`POST /v1/trajectories/{id}/steps`. (trajectory, epoch, step_index) is its key: repeated, it is not run again."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"epoch": 0, "step_index": 0, "action": {"type": "execute_sql", "sql": "SELECT count(*) FROM orders"}},
                {"epoch": 0, "step_index": 1, "action": {"type": "submit", "sql": ["SELECT id FROM orders"]}},
            ]
        },
    )

    epoch: int = Field(ge=0, le=MAX_COUNT)
    step_index: int = Field(ge=0, le=MAX_COUNT)
    action: Action
    policy_version: PolicyVersion | None = Field(
        default=None, description="Kept with the step, for off-policy corrections."
    )


class SqlError(Reply):
    """Why a statement failed, in SQLite's own words."""

    message: str
    sqlite_code: str | None = None
    statement_index: int | None = None
    offset: int | None = None
    hint: str | None = None


class StatementOutcome(Reply):
    """One statement of a step's text."""

    sql: SqlText
    outcome: Outcome
    readonly: bool | None = None
    columns: list[SqlText] = Field(default_factory=list)
    rows_seen: int = 0
    rowcount: int | None = Field(
        default=None, description="Rows inserted, updated or deleted by this statement itself."
    )
    elapsed_ms: float = 0.0
    error: SqlError | None = None


class Observation(Reply):
    """What came of a step: `text` for the policy, the rest for programs."""

    text: str
    format: ObservationFormat
    text_truncated_chars: int = 0
    columns: list[SqlText] = Field(default_factory=list)
    rows: list[list[Json]] = Field(default_factory=list[list[Json]])
    rows_seen: int = Field(default=0, description="Rows the last result had, returned or not.")
    rowcount: int | None = None
    truncated: bool = Field(default=False, description="Whether `rows` holds fewer than `rows_seen`.")
    statements: list[StatementOutcome] = Field(default_factory=list[StatementOutcome])
    statements_seen: int = Field(
        default=0, description="Statements that the text had up to its end or its first error; not all may be listed."
    )
    error: SqlError | None = None
    in_transaction: bool = False
    transaction_rolled_back: bool = False
    result_hash: str = Field(
        default="", description="Same result, same hash: sha256 over outcome, columns and every row seen."
    )

    def values(self) -> list[tuple[Value, ...]]:
        """The rows as Python values, exactly as the database gave them."""
        return decode_rows(self.rows)


class ScoreStatus(StrEnum):
    SUCCESS = "success"
    FAILED = "failed"
    UNSCORABLE = "unscorable"


class OfficialVerdict(Reply):
    """The public evaluator's own fields. `issue_sql_passed_unexpectedly` is null where it never got that far."""

    status: Literal["success", "failed"]
    passed: int
    total: int
    failed_tests: list[str]
    execution_error: bool
    timeout_error: bool
    assertion_error: bool
    issue_sql_passed_unexpectedly: bool | None = None


class ScorerVersions(Reply):
    """What the verdict was made with: it can differ between SQLite libraries."""

    python: str
    scorer_sqlite: str
    engine_sqlite: str | None = None
    bird_env: str


class Score(Reply):
    """A solution's score. `official` is the benchmark's verdict; `reward` is 1.0 where it is a success, else 0.0."""

    task_id: str | None
    status: ScoreStatus
    reward: float | None
    reward_parts: dict[str, float] = Field(default_factory=dict)
    official: OfficialVerdict | None = None
    elapsed_ms: float = 0.0
    versions: ScorerVersions | None = None


class StepResult(Reply):
    """The reply to a step."""

    trajectory_id: str
    epoch: int
    step_index: int
    observation: Observation
    reward: float | None = None
    reward_parts: dict[str, float] = Field(default_factory=dict)
    terminated: bool = False
    truncated: bool = False
    truncation_reason: TruncationReason | None = None
    outcome: Outcome
    elapsed_ms: float
    queue_ms: float = 0.0
    lease_expires_at: datetime | None = None
    score: Score | None = None


class RecordedStep(Reply):
    """A step as the ledger keeps it."""

    epoch: int
    step_index: int
    action: Action
    policy_version: PolicyVersion | None = None
    result: StepResult
    created_at: datetime


class ResetRequest(Request):
    """`POST …/reset`: the trajectory back at its beginning, in a new epoch. Give `epoch` to make a repeat harmless."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra={"examples": [{"epoch": 0}]})

    epoch: int | None = Field(
        None, ge=0, le=MAX_COUNT, description="The epoch that is to end; repeated after the reset, it is replayed."
    )


class ScoreRequest(Request):
    """`POST …/score`: without `sql` the submitted score again; with it, that solution (scope `admin`)."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", json_schema_extra={"examples": [{}, {"sql": ["SELECT id FROM orders"]}]}
    )

    sql: SqlList | None = None


class CreateScore(Request):
    """`POST /v1/scores`: a solution of a task, scored without a trajectory."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        json_schema_extra={"examples": [{"task_id": "orders_1", "sql": ["SELECT id FROM orders"]}]},
    )

    task_id: str = Field(min_length=1)
    sql: SqlList


class Heartbeat(Reply):
    trajectory_id: str
    lease_expires_at: datetime | None


class EndedRun(Reply):
    """`DELETE /v1/trajectories?run_id=`: how many live trajectories it ended."""

    run_id: str
    ended: int


class ColumnInfo(Reply):
    name: str
    type: str
    not_null: bool
    primary_key: bool
    default: str | None = None


class ForeignKeyInfo(Reply):
    columns: list[str]
    references_table: str
    references_columns: list[str]


class TableInfo(Reply):
    name: str
    kind: str = Field(default="table", description="table, view, virtual or shadow.")
    sql: str | None = None
    columns: list[ColumnInfo]
    foreign_keys: list[ForeignKeyInfo] = Field(default_factory=list[ForeignKeyInfo])
    rows: int | None = None


class DatabaseInfo(Reply):
    """A database that trajectories can start from."""

    database: str
    sha256: str
    size_bytes: int
    page_size_bytes: int
    tables: int
    imported_at: datetime


class DatabaseSchema(Reply):
    database: str
    sha256: str
    text: str = Field(description="CREATE statements, in the order of the file.")
    tables: list[TableInfo]


class TaskInfo(Reply):
    """A task as a policy may know it: never its gold, never its tests."""

    task_id: str
    database: str
    category: str | None = None
    difficulty: str | None = None
    issue: SqlText
    evidence: SqlText | None = None
    issue_sql: list[SqlText] = Field(default_factory=list)
    preprocess_sql: list[SqlText] = Field(default_factory=list)
    scorable: bool
    digest: str


class FunctionSchema(Reply):
    name: str
    description: str
    parameters: dict[str, Any]


class ToolSchema(Reply):
    """A tool in the form that OpenAI-compatible chat APIs take."""

    type: Literal["function"] = "function"
    function: FunctionSchema


class TemplatePool(Reply):
    database: str
    sha256: str
    size_bytes: int
    live: int
    served: int


class PoolStatus(Reply):
    """What the pool holds at this moment."""

    live: int
    capacity: int
    queued: int
    served: int = Field(description="Replicas made since the server started, resets included.")
    disk_bytes: int = Field(description="Bytes on disk of live replicas, beyond their templates.")
    scoring: int = Field(description="Scorings that run or wait.")
    templates: list[TemplatePool]
    runs: dict[str, int] = Field(default_factory=dict, description="Live trajectories by run_id.")


class Health(Reply):
    status: Literal["ok", "starting", "draining", "degraded"]
    detail: str | None = None


class Version(Reply):
    version: str
    python: str
    engine_sqlite: str
    scorer_sqlite: str
    api: str = "v1"


class Page(Reply, Generic[T]):
    """One page of a list: pass `next_page_token` as `page_token` to get the next; null on the last."""

    items: list[T]
    next_page_token: str | None = None


def without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that were given."""
    return {key: value for key, value in values.items() if value is not None}
