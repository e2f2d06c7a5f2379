"""Every error that crosses the wire, as one closed tree; `code` is the contract, the class is its Python face.

    BirdEnvError
    ├── RequestError                 the caller's request cannot be served as it stands; repeating it changes nothing
    │   ├── MalformedRequest         400  not JSON, or not an object
    │   ├── Unauthorized             401  no token, or one the server does not know
    │   ├── Forbidden                403  the token lacks the scope
    │   ├── NotFound                 404  no such route
    │   │   ├── MethodNotAllowed     405
    │   │   ├── UnknownTrajectory
    │   │   ├── UnknownTask
    │   │   └── UnknownDatabase
    │   ├── BodyTooLarge             413
    │   ├── InvalidRequest           422  a field is missing, unknown, of another type or out of range
    │   └── KeyReused                422  an idempotency key or step key came back with another body
    ├── Conflict                     409  right in itself, wrong at this moment
    │   ├── TrajectoryExists              the id is in use, or spent, with another request
    │   ├── StepConflict                  the step index is not the next one
    │   ├── StaleEpoch                    the trajectory was reset since
    │   ├── EpisodeOver                   the episode has ended; reset it or make another
    │   └── NothingSubmitted              there is no score to repeat
    ├── TrajectoryGone               410  ended and its replica dropped; `end_reason` says why
    ├── TaskError                    422  the task itself is at fault: never the policy, never the server
    │   └── PreprocessFailed              its preprocess_sql does not run; names the statement
    ├── DataError                    422  a file given to an import cannot be used
    └── ServiceError                 ours: never an observation, never a reward; retryable with the same key
        ├── Overloaded               503  no capacity within the wait; Retry-After says when
        ├── ShuttingDown             503
        ├── StoreFull                503  the disk or the descriptors are used up
        ├── Starved                  503  the wall clock ran out while the processor was given to others
        ├── ScorerFault              503  a scoring child could not be run, or died of no fault of the solution
        ├── LedgerFault              503  the ledger could not commit
        ├── ServerUnreachable        --   made by the client: no answer from the server within the retries
        └── InternalError            500  a defect of the service

A policy's SQL that fails is none of these: it is a step with `outcome: sql_error` under status 200.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


class ErrorCode(StrEnum):
    """The `code` of a problem document. A client must take a code it does not know as an error like any other."""

    MALFORMED_REQUEST = "malformed_request"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    UNKNOWN_TRAJECTORY = "unknown_trajectory"
    UNKNOWN_TASK = "unknown_task"
    UNKNOWN_DATABASE = "unknown_database"
    BODY_TOO_LARGE = "body_too_large"
    INVALID_REQUEST = "invalid_request"
    KEY_REUSED = "key_reused"
    TRAJECTORY_EXISTS = "trajectory_exists"
    STEP_CONFLICT = "step_conflict"
    STALE_EPOCH = "stale_epoch"
    EPISODE_OVER = "episode_over"
    NOTHING_SUBMITTED = "nothing_submitted"
    TRAJECTORY_GONE = "trajectory_gone"
    PREPROCESS_FAILED = "preprocess_failed"
    DATA_ERROR = "data_error"
    OVERLOADED = "overloaded"
    SHUTTING_DOWN = "shutting_down"
    STORE_FULL = "store_full"
    STARVED = "starved"
    SCORER_FAULT = "scorer_fault"
    LEDGER_FAULT = "ledger_fault"
    SERVER_UNREACHABLE = "server_unreachable"
    INTERNAL_ERROR = "internal_error"


class Problem(BaseModel):
    """The one shape of an error on the wire: RFC 9457 `application/problem+json` with our own members."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    instance: str | None = None
    code: str
    retryable: bool
    hint: str | None = None
    request_id: str | None = None
    trajectory_id: str | None = None
    retry_after_s: float | None = None


class BirdEnvError(Exception):
    """Base of every error here. `str()` is the detail; the hint says what to do about it.

    Args:
        detail: What happened, for a person; never a traceback, never gold or test text.
        hint: What to do about it; the class's own where none is given.
        retry_after_s: Seconds after which a retry may succeed (Retry-After).
        fields: Further members of the problem document, such as `expected_step_index`.
    """

    code: ClassVar[ErrorCode] = ErrorCode.INTERNAL_ERROR
    title: ClassVar[str] = "Error"
    retryable: ClassVar[bool] = False
    default_hint: ClassVar[str | None] = None

    def __init__(
        self,
        detail: str = "",
        *,
        hint: str | None = None,
        retry_after_s: float | None = None,
        problem: Problem | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(detail or self.title)
        self.detail = detail or self.title
        self.hint = hint if hint is not None else self.default_hint
        self.retry_after_s = retry_after_s
        self.problem = problem
        self.fields = fields

    @classmethod
    def from_problem(cls, problem: Problem) -> BirdEnvError:
        """The error a problem document stands for; an unknown code becomes the base class, told apart by status."""
        found: type[BirdEnvError] | None = BY_CODE.get(problem.code)
        if found is None:
            found = InternalError if problem.status >= 500 else RequestError
        error = found(problem.detail, hint=problem.hint, retry_after_s=problem.retry_after_s, problem=problem)
        error.fields.update(problem.model_extra or {})
        return error


class RequestError(BirdEnvError):
    code = ErrorCode.INVALID_REQUEST
    title = "The request cannot be served"


class MalformedRequest(RequestError):
    code = ErrorCode.MALFORMED_REQUEST
    title = "The request body is not a JSON object"
    default_hint = "Send a JSON object encoded as UTF-8, with Content-Type: application/json."


class Unauthorized(RequestError):
    code = ErrorCode.UNAUTHORIZED
    title = "A token is needed"
    default_hint = "Send `Authorization: Bearer TOKEN`; the token stands in the server's settings."


class Forbidden(RequestError):
    code = ErrorCode.FORBIDDEN
    title = "The token does not allow this"
    default_hint = "Use a token with the scope that `required_scope` names."


class NotFound(RequestError):
    code = ErrorCode.NOT_FOUND
    title = "There is nothing at this address"
    default_hint = "GET /openapi.json lists every route."


class MethodNotAllowed(NotFound):
    code = ErrorCode.METHOD_NOT_ALLOWED
    title = "This address does not take that method"


class UnknownTrajectory(NotFound):
    code = ErrorCode.UNKNOWN_TRAJECTORY
    title = "No trajectory has this id"
    default_hint = "Create it with POST /v1/trajectories; ids are the ones that the client chose."


class UnknownTask(NotFound):
    code = ErrorCode.UNKNOWN_TASK
    title = "No task has this id"
    default_hint = "GET /v1/tasks lists them; `bird-env tasks import` adds some."


class UnknownDatabase(NotFound):
    code = ErrorCode.UNKNOWN_DATABASE
    title = "No database has this name"
    default_hint = "GET /v1/databases lists them; `bird-env databases import` adds one."


class BodyTooLarge(RequestError):
    code = ErrorCode.BODY_TOO_LARGE
    title = "The request body is too large"
    default_hint = "Send less in one request; the limit is the server's `max_body_bytes`."


class InvalidRequest(RequestError):
    code = ErrorCode.INVALID_REQUEST
    title = "The request does not fit its schema"
    default_hint = "Each entry of `errors` names a field and what is wrong with it."


class KeyReused(RequestError):
    code = ErrorCode.KEY_REUSED
    title = "This key was used before with another body"
    default_hint = "A key names one request for good: repeat it unchanged, or choose a new key."


class Conflict(BirdEnvError):
    code = ErrorCode.STEP_CONFLICT
    title = "The request does not fit the present state"


class TrajectoryExists(Conflict):
    code = ErrorCode.TRAJECTORY_EXISTS
    title = "This trajectory id is taken"
    default_hint = "An id is used once: repeat the same request to get its reply again, or choose a new id."


class StepConflict(Conflict):
    code = ErrorCode.STEP_CONFLICT
    title = "This is not the next step"
    default_hint = "Send `expected_step_index` as step_index; an earlier index gets its stored reply."


class StaleEpoch(Conflict):
    code = ErrorCode.STALE_EPOCH
    title = "The trajectory was reset since"
    default_hint = "Take `epoch` from the reply to the reset, or from GET /v1/trajectories/{id}."


class EpisodeOver(Conflict):
    code = ErrorCode.EPISODE_OVER
    title = "The episode is over"
    default_hint = "POST …/score repeats the score; POST …/reset starts a new episode on the same task."


class NothingSubmitted(Conflict):
    code = ErrorCode.NOTHING_SUBMITTED
    title = "Nothing was submitted in this epoch"
    default_hint = "Submit with a step of type `submit`, or give `sql` to score a solution on the side."


class TrajectoryGone(BirdEnvError):
    code = ErrorCode.TRAJECTORY_GONE
    title = "The trajectory has ended"
    default_hint = "`end_reason` says why. Its steps stay readable; create another trajectory to go on."


class TaskError(BirdEnvError):
    code = ErrorCode.PREPROCESS_FAILED
    title = "The task is at fault"


class PreprocessFailed(TaskError):
    code = ErrorCode.PREPROCESS_FAILED
    title = "The task's preprocess_sql does not run"
    default_hint = "`statement_index` names the statement; mend the task and import it again."


class DataError(BirdEnvError):
    code = ErrorCode.DATA_ERROR
    title = "The file cannot be used"


class ServiceError(BirdEnvError):
    code = ErrorCode.INTERNAL_ERROR
    title = "The service could not do it"
    retryable = True


class Overloaded(ServiceError):
    code = ErrorCode.OVERLOADED
    title = "The pool is full"
    default_hint = "Wait `retry_after_s` and repeat the request; end trajectories that are no longer needed."


class ShuttingDown(ServiceError):
    code = ErrorCode.SHUTTING_DOWN
    title = "The server is shutting down"


class StoreFull(ServiceError):
    code = ErrorCode.STORE_FULL
    title = "The store has no room"
    default_hint = "Free disk space or raise the descriptor limit; `bird-env doctor` shows both."


class Starved(ServiceError):
    code = ErrorCode.STARVED
    title = "The machine was too busy to run the statement"
    default_hint = "Repeat the step with the same step_index: nothing of it was kept."


class ScorerFault(ServiceError):
    code = ErrorCode.SCORER_FAULT
    title = "The scorer could not be run"
    default_hint = "Repeat the request: no score was given, and the solution is not to blame."


class LedgerFault(ServiceError):
    code = ErrorCode.LEDGER_FAULT
    title = "The ledger could not commit"
    default_hint = "Repeat the request with the same key: it is executed at most once."


class ServerUnreachable(ServiceError):
    code = ErrorCode.SERVER_UNREACHABLE
    title = "The server did not answer"
    default_hint = "Is `bird-env serve` running at this address? The same request may be repeated safely."


class InternalError(ServiceError):
    code = ErrorCode.INTERNAL_ERROR
    title = "The service failed"
    default_hint = "Report it with `request_id`; the same request may be repeated safely."


#: The class that a code becomes in Python. Grouping classes share a code with one of their leaves and are not in it.
BY_CODE: dict[str, type[BirdEnvError]] = {
    error.code: error
    for error in (
        MalformedRequest,
        Unauthorized,
        Forbidden,
        NotFound,
        MethodNotAllowed,
        UnknownTrajectory,
        UnknownTask,
        UnknownDatabase,
        BodyTooLarge,
        InvalidRequest,
        KeyReused,
        TrajectoryExists,
        StepConflict,
        StaleEpoch,
        EpisodeOver,
        NothingSubmitted,
        TrajectoryGone,
        PreprocessFailed,
        DataError,
        Overloaded,
        ShuttingDown,
        StoreFull,
        Starved,
        ScorerFault,
        LedgerFault,
        ServerUnreachable,
        InternalError,
    )
}
