"""The values that cross a boundary: between planner and driver, driver and worker, driver and store.

Knows nothing of protobuf, Redis, torch or time.
"""

from dataclasses import dataclass, field
from enum import StrEnum

PROTOCOL_MIN = 1
PROTOCOL_MAX = 1
DRAINING = "draining"  # the worker is about to end: what runs there goes on elsewhere

TokenIds = tuple[int, ...]


class FinishReason(StrEnum):
    """Why a request ended. The first three end as `finished`, the rest as a status of that kind."""

    STOP_TOKEN = "stop_token"
    LENGTH = "length"
    STOP_STRING = "stop_string"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    ERROR = "error"
    QUARANTINED = "quarantined"  # it crashed its worker again and again
    UNFIT = "unfit"  # no worker that is there can ever run it


class ReleaseReason(StrEnum):
    FINISHED = "finished"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    STALE = "stale"
    FAILED = "failed"


class RefusalReason(StrEnum):
    """Why a worker did not execute one row of a plan. The rest of the plan ran."""

    NO_FREE_BLOCK = "no_free_block"
    UNKNOWN_HANDLE = "unknown_handle"
    DUPLICATE_HANDLE = "duplicate_handle"
    BAD_ADMISSION = "bad_admission"
    FAILED = "failed"
    SEQUENCE_CAP = "sequence_cap"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How a token is drawn. The uniform number is a function of (seed, child_index, token index)."""

    temperature: float = 1.0  # 0 = greedy
    top_k: int = 0  # 0 = off
    top_p: float = 1.0  # 1 = off
    min_p: float = 0.0  # 0 = off
    seed: int = 0  # [0, 2**64)
    child_index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRules:
    """When the worker itself ends a sequence. Stop strings are the scheduler's."""

    max_tokens: int  # output tokens, those already in the log included
    min_tokens: int = 0  # stop tokens cannot be sampled before so many output tokens
    stop_token_ids: TokenIds = ()  # the model's own end tokens included, unless they are ignored


@dataclass(frozen=True, slots=True, order=True)
class Assignment:
    """A request's present tie to a worker. Both numbers are checked wherever rows are accepted."""

    counter: int
    nonce: int  # [0, 2**64), random


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    handle: int
    reason: ReleaseReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """A request becomes a sequence of a worker: all that the worker needs to know of it."""

    request_id: str
    assignment: Assignment
    handle: int  # drawn by the driver; never used twice in an epoch
    token_ids: TokenIds  # prompt, then log
    num_prompt_tokens: int
    sampling: SamplingParams
    stop: StopRules
    cache_salt: bytes = b""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Advance the sequence by at most so many pending tokens; the worker clamps."""

    handle: int
    max_num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """One step's work: releases first, then admissions, then chunks."""

    epoch: int
    step_id: int  # consecutive; a refused plan consumes none
    durable_step: int = 0  # rows of steps up to this one may leave the outbox
    releases: tuple[Release, ...] = ()
    admissions: tuple[Admission, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    predicted_ns: int = 0  # 0 = no forecast


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCounts:
    """Blocks of a worker's cache: free + cached + held = total after every step."""

    total: int
    free: int
    cached: int
    held: int

    @property
    def available(self) -> int:
        """Blocks that an allocation can have: cached ones are given up when needed."""
        return self.free + self.cached


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStats:
    process_bytes: int = 0
    kv_bytes: int = 0
    device_used_bytes: int = 0
    device_total_bytes: int = 0
    device_reserved_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimings:
    idle_ns: int = 0
    prepare_ns: int = 0
    forward_ns: int = 0
    sample_ns: int = 0
    total_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """What one step did for one sequence."""

    handle: int
    num_computed_tokens: int  # in this step
    sampled_ids: TokenIds = ()
    first_index: int = 0  # output index of the first sampled id
    num_cached_tokens: int = 0  # found in the prefix cache; on the first row after admission
    finish: FinishReason | None = None  # STOP_TOKEN or LENGTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    handle: int
    reason: RefusalReason
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    epoch: int
    step_id: int
    rows: tuple[StepRow, ...]
    refusals: tuple[Refusal, ...] = ()
    blocks: BlockCounts
    memory: MemoryStats = field(default_factory=MemoryStats)
    timings: StepTimings = field(default_factory=StepTimings)
    idle_with_work: bool = False  # timings.idle_ns was spent although sequences were live


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidentSequence:
    request_id: str
    assignment: Assignment
    handle: int
    num_prompt_tokens: int
    num_computed_tokens: int
    output_ids: TokenIds  # all of them: the log's and those not yet durable
    num_held_blocks: int  # blocks of its table, shared ones included
    finish: FinishReason | None = None  # ended by the worker; stays until released


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """A worker's answer to Hello, at a step boundary."""

    incarnation: str
    epoch: int
    last_step_id: int
    sequences: tuple[ResidentSequence, ...]
    blocks: BlockCounts
    protocol_min: int = PROTOCOL_MIN
    protocol_max: int = PROTOCOL_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDescription:
    """What a worker is; fixed at its start."""

    incarnation: str
    name: str
    model: str
    fingerprint: str
    dtype: str
    device: str
    block_size: int
    num_blocks: int
    max_model_tokens: int
    logits_width: int
    eos_token_ids: TokenIds
    max_step_tokens: int = 0  # 0 = no limit of its own
    max_sequences: int = 0  # 0 = no limit of its own
    protocol_min: int = PROTOCOL_MIN
    protocol_max: int = PROTOCOL_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStats:
    incarnation: str
    epoch: int
    driver: str  # replica id; empty = undriven
    last_step_id: int
    running_step_id: int  # 0 = none
    running_step_age_ms: int
    num_sequences: int
    blocks: BlockCounts
    memory: MemoryStats
    num_steps: int
    num_sampled_tokens: int


# Messages of the Drive stream, either way.


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    replica_id: str
    protocol_min: int = PROTOCOL_MIN
    protocol_max: int = PROTOCOL_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverHeartbeat:
    durable_step: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Yield:
    reason: str = ""
    forget: bool = False  # the store has given this incarnation up: drop all, draw a new one


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHeartbeat:
    last_step_id: int
    running_step_id: int = 0
    running_step_age_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The result of a step once more, for a plan that repeats its step id."""

    result: StepResult


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRefused:
    """A whole plan refused: nothing of it ran, its step id is not consumed."""

    step_id: int
    reason: str  # gap, stale_epoch, malformed, too_many_in_flight
    detail: str = ""
    expected_step_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """This stream may not drive (any more)."""

    reason: str  # driven_by_other, newer_epoch, protocol, yielded, draining
    driver: str = ""
    epoch: int = 0


DriverMessage = Hello | BatchPlan | DriverHeartbeat | Yield
WorkerMessage = Resident | StepResult | Replay | WorkerHeartbeat | Fenced | PlanRefused
