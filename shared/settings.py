"""The settings: one frozen object, built once from the environment, passed down.

Each has the prefix ``FORESCORE_``; nested ones are joined by two underscores: ``FORESCORE_REDIS__URL``.
"""

from math import ceil
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared.errors import SettingsError

_FROZEN = ConfigDict(frozen=True, extra="forbid")


class RedisSettings(BaseModel):
    """Where the scores are kept, and how long to wait for them."""

    model_config = _FROZEN

    url: SecretStr | None = Field(
        default=None,
        description="redis://, rediss://, unix://, redis+sentinel://host,host/service or redis+cluster://host. "
        "Unset: an embedded Valkey under FORESCORE_HOME.",
    )
    namespace: str = Field(default="fs", pattern=r"^[a-z0-9_-]{1,32}$", description="The first part of every key.")
    read_timeout_ms: int = Field(default=80, ge=1, description="How long a look-up waits for the store, each try.")
    read_retries: int = Field(default=1, ge=0, le=3, description="How often a look-up is tried again.")
    read_connections: int = Field(default=64, ge=1, description="The most connections one service process opens.")
    write_timeout_seconds: float = Field(default=30, gt=0, description="How long a writer waits for one reply.")
    breaker_failures: int = Field(default=5, ge=1, description="Failures in a row after which the store is not asked.")
    breaker_seconds: float = Field(
        default=1, gt=0, description="How long it is not asked, before one call tries again."
    )


class ServiceSettings(BaseModel):
    """How the service listens and what it lets in."""

    model_config = _FROZEN

    host: str = Field(default="127.0.0.1", description="The address to listen on.")
    port: int = Field(default=8000, ge=0, le=65535, description="The port to listen on; 0 picks a free one.")
    workers: int = Field(
        default=1, ge=1, le=256, description="Processes that answer on that port, each with the model in its memory."
    )
    drain_seconds: float = Field(
        default=2,
        ge=0,
        le=600,
        description="How long it answers on, not ready any more, after SIGTERM: until whoever sends calls has seen it. "
        "Ctrl-C and a second signal do not wait.",
    )
    hang_seconds: float = Field(
        default=30,
        ge=0,
        le=3600,
        description="With several workers: one whose event loop stands still for so long is killed and replaced. "
        "0: never, such as while a debugger holds it.",
    )
    deadline_ms: int = Field(
        default=1000, ge=10, description="By when every request is answered, with 504 at the latest."
    )
    file_timeout_ms: int = Field(
        default=50,
        ge=1,
        description="How long a look-up in the snapshot's file may take, while the store does not answer.",
    )
    max_body_bytes: int = Field(default=1024 * 1024, ge=1024, description="A longer body is refused with 413.")
    max_head_bytes: int = Field(
        default=16 * 1024, ge=1024, description="A longer head of a request, its path and headers, is refused with 431."
    )
    receive_seconds: float = Field(
        default=5,
        gt=0,
        le=60,
        description="How long the head of a request may take to arrive, and then its body: 408 after that. Also how "
        "long a caller may take to read an answer.",
    )
    max_connections: int = Field(
        default=1000,
        ge=1,
        description="The most open connections of each worker. An idle one is closed for a new one; where none is "
        "idle, the new one is refused with 503.",
    )
    max_items: int = Field(default=1000, ge=1, description="The most items of one POST /score.")
    max_batch: int = Field(default=256, ge=1, description="The most rows of one forward pass.")
    max_wait_ms: float = Field(
        default=0,
        ge=0,
        le=1000,
        description="How long the oldest waiting row is held back for a fuller pass, once another has ended. "
        "An idle service never waits.",
    )
    max_queue_rows: int = Field(
        default=4096, ge=1, description="The most rows that wait for a forward pass; more are refused with 503."
    )
    max_age_seconds: float | None = Field(
        default=None,
        gt=0,
        description="How old a score of the active snapshot may be that is served; an older one is scored anew, or "
        "refused with 503. Unset: any age.",
    )
    max_age_spread: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="The last share of max_age_seconds in which a score that is asked for is scored anew in the "
        "background, from a moment of each entity's own: what was published together does not grow too old together. "
        "0: never.",
    )
    pointer_poll_seconds: float = Field(default=1, gt=0, description="How soon a promotion is seen, at the latest.")
    retry_after_seconds: int = Field(default=2, ge=1, description="What Retry-After says while the store is down.")
    fast_lane: bool = Field(
        default=True, description="Whether cache hits are answered before the framework. The answers are the same."
    )
    write_back: bool = Field(default=True, description="Whether online scores are written into the active snapshot.")
    write_back_per_second: int = Field(
        default=200, ge=1, description="The most online scores written back each second."
    )

    @property
    def flight_seconds(self) -> int:
        """How long what is in flight may take once nothing new is let in: it arrives, and is answered in time."""
        return max(1, self.deadline_ms // 1000 + 1) + ceil(self.receive_seconds)


class KeySettings(BaseModel):
    """Who may ask the service. Without a key it asks nobody who he is."""

    model_config = _FROZEN

    file: Path | None = Field(
        default=None,
        description="A file of API keys, one line each: `name scopes sha256 [expires]`, as `forescore key new` writes "
        "it. It is read again when it changes.",
    )
    lines: SecretStr | None = Field(
        default=None, description="The same lines in place of a file, parted by semicolons: for containers."
    )
    open: bool = Field(
        default=False,
        description="Whether `forescore serve` may listen without keys on an address that other machines reach.",
    )
    open_metrics: bool = Field(default=False, description="Whether /metrics needs no key where other paths do.")
    poll_seconds: float = Field(default=1, gt=0, description="How soon a change of the file is seen, at the latest.")

    @property
    def are_set(self) -> bool:
        """Whether a key is asked for."""
        return self.file is not None or self.lines is not None


_RATES = r"^([1-9]\d{0,8}/(second|minute|hour|day)(;[1-9]\d{0,8}/(second|minute|hour|day))*)?$"


class LimitSettings(BaseModel):
    """How much may be asked, counted in rows: a list of 32 items is 32. Unset: no limit."""

    model_config = _FROZEN

    rate: str = Field(
        default="",
        pattern=_RATES,
        description="Rows in a time, of all callers together: `5000/second` or `5000/second;100000/minute`. More are "
        "refused with 429.",
    )
    rate_per_key: str = Field(
        default="", pattern=_RATES, description="Rows in a time, of each key's name; without keys, of all callers."
    )
    rows: int | None = Field(
        default=None, ge=1, description="The most rows in work at once in each worker; more are refused with 503."
    )
    rows_per_key: int | None = Field(default=None, ge=1, description="The same for each key's name.")
    delay_ms: int = Field(
        default=50,
        ge=0,
        description="While a worker's event loop is late by more than this, time and again and by its own work, it "
        "refuses requests with 503. 0: never.",
    )
    storage: Literal["memory", "store"] = Field(
        default="memory",
        description="Where rates are counted. memory: by each worker for itself. store: for all workers and hosts "
        "together, which costs each request a round trip; while the store does not answer, no rate is limited.",
    )

    @property
    def has_rates(self) -> bool:
        """Whether rows are counted at all."""
        return bool(self.rate or self.rate_per_key)

    @property
    def are_shared(self) -> bool:
        """Whether it is the store that counts them."""
        return self.has_rates and self.storage == "store"


class FeatureSettings(BaseModel):
    """Where the features of entities come from that the batch has not seen."""

    model_config = _FROZEN

    url: SecretStr = Field(
        default=SecretStr("store"),
        description="'store' (written by PUT /features and forescore features load), the path of a Parquet file, "
        "sqlite:///path?table=T, postgresql://user@host/db?table=T, MODULE:FUNCTION of your own, or 'none'. "
        "Several, joined by commas, are asked in order; a comma within a URL is written %2C.",
    )
    timeout_ms: int = Field(default=200, ge=1, description="How long one source may take.")
    ttl_seconds: int = Field(default=7 * 86_400, ge=1, description="How long features are kept in the store, at most.")
    unknown_seconds: float = Field(
        default=2, ge=0, description="How long an id without features is remembered as such."
    )
    sql_table: str | None = Field(
        default=None, description="The table of an SQL source whose URL has no ?table=; a view will do."
    )
    sql_entity_column: str | None = Field(
        default=None, description="Its column of entity ids. Unset: the schema's entity."
    )
    pool_size: int = Field(default=5, ge=1, le=100, description="The most connections of one process to a database.")


class BatchSettings(BaseModel):
    """How the batch job works."""

    model_config = _FROZEN

    chunk_size: int = Field(default=50_000, ge=1, le=1_000_000, description="Rows of one chunk, and so of one part.")
    max_rejected: str = Field(
        default="10%", pattern=r"^\d+(\.\d+)?%?$", description="A share (10%) or a count above which a run fails."
    )
    chunk_timeout_seconds: float = Field(
        default=300, gt=0, description="How long one forward pass may take before its rows are tried apart."
    )
    nice: int = Field(
        default=10,
        ge=0,
        le=19,
        description="By how much a run gives way to what serves on the same host: its nice value and its children's. "
        "0: not at all.",
    )


class GateSettings(BaseModel):
    """What a snapshot must show before it is promoted."""

    model_config = _FROZEN

    min_coverage: float = Field(
        default=0.9, ge=0, le=1, description="Entities, as a share of the active snapshot's, below which it is held."
    )
    max_psi: float = Field(
        default=0.25, gt=0, description="Population stability index against the active snapshot above which it is held."
    )
    keep: int = Field(default=2, ge=1, description="Snapshots that stay after a promotion, the active one included.")
    lease_seconds: float = Field(default=30, ge=1, description="How long a silent publisher holds its lease.")


class ScheduleSettings(BaseModel):
    """When the nightly run is due, what becomes of one that fails, and when to raise the alarm."""

    model_config = _FROZEN

    table: str | None = Field(default=None, description="The table that `forescore schedule` scores.")
    cron: str = Field(default="0 2 * * *", description="When a run is due: minute, hour, day, month, weekday.")
    timezone: str = Field(default="UTC", description="The time zone of the cron line, such as Europe/Berlin.")
    catch_up: bool = Field(
        default=True, description="Whether a run that was due and is not there (the host slept) is made up for at once."
    )
    misfire_grace_seconds: int = Field(
        default=4 * 3600, ge=1, description="How late a due run may begin. After that, catching up decides."
    )
    run_deadline_seconds: float = Field(
        default=6 * 3600, gt=0, description="How long a run may take before it is ended and counts as failed."
    )
    attempts: int = Field(default=3, ge=1, description="How often a run is tried until the next one is due.")
    backoff_seconds: float = Field(
        default=60, gt=0, description="The pause after the first failed attempt; each further one is twice as long."
    )
    stop_seconds: float = Field(
        default=20, gt=0, description="How long a run that is told to end may take before it is killed."
    )
    max_age_seconds: float = Field(
        default=0,
        ge=0,
        description="The age of the active snapshot that raises the alarm; 0: one and a half of the longest period.",
    )
    poll_seconds: float = Field(default=5, gt=0, description="How often the clock and the store are looked at.")
    success_marker: Literal["auto", "required", "none"] = Field(
        default="auto",
        description="Which date partition is complete. required: one with a _SUCCESS file. none: any with data. "
        "auto: required if one of the table has it, else one that settled.",
    )
    settle_seconds: float = Field(
        default=300, ge=0, description="How long the files of a partition without a marker must have been left alone."
    )
    prune_runs: bool = Field(
        default=True, description="Whether folders of its earlier runs are removed once the store has them no more."
    )
    host: str = Field(default="127.0.0.1", description="The address of its probes and metrics.")
    port: int = Field(default=8001, ge=0, le=65535, description="The port of its probes and metrics; 0: a free one.")


class Settings(BaseSettings):
    """All settings."""

    model_config = SettingsConfigDict(
        env_prefix="FORESCORE_",
        env_nested_delimiter="__",
        frozen=True,
        extra="ignore",
        nested_model_default_partial_update=True,
    )

    home: Path = Field(default=Path(".forescore"), description="Where runs and the embedded store live.")
    runs: Path | None = Field(
        default=None,
        description="The folder of the runs: their parts, the files of their snapshots, and which of these is active. "
        "Unset: runs under FORESCORE_HOME.",
    )
    store: Literal["redis", "none"] = Field(
        default="redis",
        description="Where `forescore serve` looks scores up. redis: as FORESCORE_REDIS__URL says, and in the active "
        "snapshot's file while that does not answer. none: in the file alone.",
    )
    bundle: Path | None = Field(default=None, description="The bundle that `forescore serve` scores online with.")
    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$", description="auto, cpu, cuda or cuda:N.")
    threads: int = Field(
        default=0,
        ge=0,
        description="Threads of the service's forward pass, 0: one; passes at once in the batch job, 0: one a core.",
    )
    engine: Literal["auto", "export", "compiled"] = Field(
        default="auto",
        description="How the graph is run. compiled: compiled for this host, and refused where that cannot be. export: "
        "as it lies in the bundle. auto: compiled where the engine cache has it, else export.",
    )
    engine_cache: Path | None = Field(
        default=None,
        description="The private folder of graphs compiled for this host. Unset: engines under FORESCORE_HOME.",
    )
    log_format: Literal["auto", "json", "pretty"] = Field(
        default="auto", description="auto: pretty on a terminal, JSON elsewhere."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least level logged."
    )
    log_requests: str = Field(
        default="all",
        pattern=r"^(all|errors|sampled:[1-9]\d{0,6})$",
        description="Which answered requests have a log line. errors: those answered with 400 or more. sampled:N: "
        "these, and one of N others. What is left out is counted: forescore_request_lines_left_out_total.",
    )
    log_buffer_ms: int = Field(
        default=100,
        ge=0,
        le=10_000,
        description="How long lines and counts of cache hits are gathered before they are written in one go; "
        "0: each is written at once.",
    )
    redis: RedisSettings = RedisSettings()
    service: ServiceSettings = ServiceSettings()
    keys: KeySettings = KeySettings()
    limits: LimitSettings = LimitSettings()
    features: FeatureSettings = FeatureSettings()
    batch: BatchSettings = BatchSettings()
    gates: GateSettings = GateSettings()
    schedule: ScheduleSettings = ScheduleSettings()

    @property
    def runs_folder(self) -> Path:
        """Where the folders of runs are."""
        return self.runs or self.home / "runs"


def load_settings() -> Settings:
    """Reads the environment once. SettingsError names the variable and the rule, never the value."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        name = "FORESCORE_" + "__".join(str(step) for step in first["loc"]).upper()
        raise SettingsError(f"{name}: {first['msg']}. The table of settings is in docs/settings.md") from None
