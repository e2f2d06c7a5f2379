"""bird_env: a private, writable SQLite database for every RL trajectory, scored as BIRD-CRITIC scores.

What users import. The names below are the whole public surface, with the modules `bird_env.errors` (every error, its
tree), `bird_env.models` (every request and reply) and `bird_env.testing`; modules with a leading underscore are not.
"""

from __future__ import annotations

from bird_env._retry import RetryPolicy
from bird_env.async_client import AsyncClient
from bird_env.client import Client, TrajectoryOptions
from bird_env.errors import (
    BirdEnvError,
    Conflict,
    EpisodeOver,
    ErrorCode,
    Overloaded,
    RequestError,
    ServerUnreachable,
    ServiceError,
    TaskError,
    TrajectoryGone,
)
from bird_env.models import (
    ChatMessage,
    ExecuteSql,
    FirstObservation,
    Limits,
    Observation,
    ObservationFormat,
    Outcome,
    Score,
    ScoreStatus,
    StepRequest,
    StepResult,
    Submit,
    TaskInfo,
    Trajectory,
)
from bird_env.rollout import Fault, Move, Policy, RolloutResult, Turn, run_rollouts
from bird_env.trajectory import AsyncTrajectoryHandle, TrajectoryHandle

__all__ = [
    "AsyncClient",
    "AsyncTrajectoryHandle",
    "BirdEnvError",
    "ChatMessage",
    "Client",
    "Conflict",
    "EpisodeOver",
    "ErrorCode",
    "ExecuteSql",
    "Fault",
    "FirstObservation",
    "Limits",
    "Move",
    "Observation",
    "ObservationFormat",
    "Outcome",
    "Overloaded",
    "Policy",
    "RequestError",
    "RetryPolicy",
    "RolloutResult",
    "Score",
    "ScoreStatus",
    "ServerUnreachable",
    "ServiceError",
    "StepRequest",
    "StepResult",
    "Submit",
    "TaskError",
    "TaskInfo",
    "Trajectory",
    "TrajectoryGone",
    "TrajectoryHandle",
    "TrajectoryOptions",
    "Turn",
    "run_rollouts",
]
