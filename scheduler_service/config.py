"""The scheduler's settings."""

from typing import ClassVar, Literal, Self

from pydantic import Field, SecretStr, model_validator

from shared.errors import InvalidRequest
from shared.settings import ServiceSettings
from shared.strategy import StrategySettings


class SchedulerSettings(ServiceSettings):
    """A stateless scheduler replica."""

    section: ClassVar[str] = "scheduler"

    host: str = Field("127.0.0.1", description="address of the client port")
    port: int = Field(50051, ge=0, le=65535, description="client port; 0 = any free one")
    operations_host: str = Field("127.0.0.1", description="address of the operators' port")
    operations_port: int = Field(50151, ge=0, le=65535, description="operators' port; 0 = any")
    workers: str = Field(
        "localhost:50061", description="worker addresses or DNS names with ports, comma-separated"
    )
    redis_url: SecretStr = Field(
        SecretStr("redis://localhost:6379/0"), description="Valkey or Redis >= 7"
    )
    pool: str = Field("default", description="queue and workers that belong together")
    durability: Literal["process", "power", "failover"] = Field(
        "power", description="what a committed token survives"
    )
    replica_id: str = Field("", description="this replica's name; empty = drawn")
    announce: str = Field("", description="file that gets the bound ports as JSON, once serving")

    token_budget: int = Field(512, ge=1, description="most tokens computed in one step")
    max_sequences: int = Field(64, ge=1, description="most sequences live on one worker")
    chunk_size: int = Field(
        0,
        ge=-1,
        description="most prompt tokens of one request in one step; 0 = the token budget, "
        "-1 = prompts are never cut",
    )
    strategy: str = Field(
        "continuous",
        description="continuous, static, dynamic, or its settings as JSON; what is set live wins",
    )
    max_bypasses: int = Field(16, ge=0, description="requests that may pass a blocked head")
    max_prompt_skips: int = Field(
        8, ge=0, description="steps after which a passed-over prompt goes before shorter ones"
    )
    max_partial_prompts: int = Field(0, ge=0, description="prompts prefilled at once; 0 = any")
    watermark: float = Field(
        0.02, ge=0, lt=1, description="share of blocks kept free at admission while anything runs"
    )
    claim_window: int = Field(64, ge=1, le=1024, description="waiting requests the planner sees")

    default_max_tokens: int = Field(256, ge=1, description="where the client names none")
    disconnect_grace_ms: int = Field(
        10_000, ge=0, description="a request without a reader for so long is cancelled"
    )
    retention_s: int = Field(600, ge=1, description="how long a finished request can be read")
    unfit_timeout_s: float = Field(
        30.0, gt=0, description="a request that no worker can run any more ends after so long"
    )
    max_queued_requests: int = Field(10_000, ge=1, description="waiting requests of the pool")
    max_queued_tokens: int = Field(50_000_000, ge=1, description="their prompt tokens")
    text_threads: int = Field(2, ge=1, le=64, description="threads that tokenize")
    max_pending_prompts: int = Field(1024, ge=1, description="prompts waiting to be tokenized")

    driver_silence_s: float = Field(2.0, gt=0, description="a silent worker is lost after so long")
    drain_s: float = Field(10.0, ge=0, description="longest time that a drain may take")
    step_file: str = Field(
        "", description="every step is appended to it as a line of JSON; empty = none"
    )
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"

    @model_validator(mode="after")
    def _strategy_fits(self) -> Self:
        try:
            size = StrategySettings.parse(self.strategy).largest_batch
        except InvalidRequest as error:
            raise ValueError(f"strategy: {error}") from error
        for name in ("claim_window", "max_sequences"):
            if size > getattr(self, name):
                raise ValueError(f"{name} must be at least the strategy's batch of {size}")
        return self
