"""Every setting of the service in one declarative table: name, type, default, unit in the name, and what it is for.

Read from the environment (`BIRD_ENV_…`) and overridden by the flags of `bird-env serve`. A value out of range is an
error at start, never a surprise at three in the morning.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from bird_env.models import ObservationFormat

MEGABYTE = 1_000_000  # wire limits are decimal megabytes


class Settings(BaseSettings):
    """The service's settings; each default is the design's."""

    model_config = SettingsConfigDict(env_prefix="BIRD_ENV_", frozen=True, extra="ignore")

    data: Path = Field(
        default=Path("bird_env_data"), description="Data directory: store, catalogue, ledger. One mount."
    )
    ledger_url: str | None = Field(
        default=None, description="SQLAlchemy URL of the ledger; default: SQLite in the data directory."
    )

    capacity: int = Field(default=4_096, ge=1, description="Live trajectories.")
    queue_limit: int = Field(default=4_096, ge=0, description="Creates that may wait for a place at once.")
    queue_wait_s: float = Field(
        default=10.0, ge=0, description="Seconds a create waits for a place, unless it says `Prefer: wait=`."
    )
    max_queue_wait_s: float = Field(default=300.0, ge=0, description="Longest wait that a client may ask for.")

    lease_s: float = Field(
        default=1_800.0, gt=0, description="Seconds without a call after which a trajectory is ended."
    )
    max_lifetime_s: float = Field(
        default=14_400.0, gt=0, description="Seconds after which it is ended whatever happens."
    )
    reap_every_s: float = Field(default=1.0, gt=0, description="How often expired leases are looked for.")

    max_steps: int = Field(default=30, ge=1, description="Steps within one epoch.")
    sql_cpu_s: float = Field(default=30.0, gt=0, description="Processor time of one step.")
    sql_wall_s: float = Field(default=120.0, gt=0, description="Wall-clock backstop of one step.")
    rows: int = Field(default=1_000, ge=0, description="Rows returned of one result.")
    result_bytes: int = Field(default=1_000_000, ge=1_000, description="Bytes returned of one typed result.")
    text_chars: int = Field(default=8_000, ge=100, description="Characters of an observation's text.")
    value_bytes: int = Field(default=1_000_000, ge=1_000, description="Longest value that SQLite may make.")
    wal_mb: float = Field(default=256.0, gt=0, description="Megabytes that a trajectory may write.")
    temp_mb: float = Field(default=1_024.0, gt=0, description="Megabytes of temporary files of one step.")
    schema_chars: int = Field(default=20_000, ge=200, description="Characters of schema in the first observation.")

    sql_threads: int = Field(
        default=8, ge=1, description="Texts that run at once in the in-process engine, not counting long ones."
    )
    sql_memory_mb: float = Field(
        default=0.0, ge=0, description="Megabytes of memory that SQLite may have; 0: a quarter of the machine's."
    )
    engine_functions: Literal["scorer", "all"] = Field(
        default="scorer", description="Refuse SQL functions that the scorer's SQLite lacks (`scorer`), or none (`all`)."
    )

    scorers: int = Field(default=0, ge=0, description="Scorings at once; 0: one a core.")
    score_limit_s: float = Field(
        default=180.0, gt=0, description="Wall-clock limit of one scoring, as the benchmark has it."
    )

    prompt: str = Field(
        default="plain", description="Prompt template of first observations, unless a create names one."
    )
    prompts: Path | None = Field(default=None, description="Folder with Jinja templates of your own, `NAME.j2`.")
    format: ObservationFormat = Field(default=ObservationFormat.TABLE, description="Format of observations' text.")

    max_body_bytes: int = Field(default=4_000_000, ge=10_000, description="Largest request body.")
    run_token: SecretStr | None = Field(default=None, description="Bearer token with scope `run`.")
    admin_token: SecretStr | None = Field(default=None, description="Bearer token with scopes `run` and `admin`.")
