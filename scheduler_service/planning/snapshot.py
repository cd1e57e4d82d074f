"""All that a plan may depend on, at one instant, and all that a plan decides.

Knows nothing of Redis, workers' protocol or time: ages are values in the snapshot.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum

from scheduler_service.planning.request import SUSPECT_ATTEMPTS
from shared.strategy import WHOLE_PREFILL

NEVER_MS = 1 << 62


class SkipReason(StrEnum):
    """Why a request got nothing in a step."""

    OVER_TOKEN_BUDGET = "over_token_budget"
    NO_FREE_BLOCKS = "no_free_blocks"
    SEQUENCE_CAP = "sequence_cap"
    BEHIND_BLOCKED_HEAD = "behind_blocked_head"  # it fits, but the head may not be passed again
    UNFIT_HERE = "unfit_here"  # it can never fit this worker
    PREEMPTED = "preempted"
    NOT_CLAIMED = "not_claimed"  # another driver was first, or it was cancelled
    BEYOND_WINDOW = "beyond_window"
    AWAITS_RESULT = "awaits_result"  # all its tokens are in plans in flight
    BEHIND_SHORTER_PROMPTS = "behind_shorter_prompts"
    ADMISSION_PAUSED = "admission_paused"  # a step that preempts admits nobody
    INTERLEAVE_BOUND = "interleave_bound"  # enough prompts are being prefilled already
    AWAITS_PREFIX = "awaits_prefix"  # somebody is computing the beginning of its prompt
    PREFILL_NOT_CUT = "prefill_not_cut"  # prompts are computed whole, and it does not fit this step
    REFILL_DELAY = "refill_delay"  # somebody came in a moment ago
    ORDER_PRESERVED = "order_preserved"  # another worker answers, in the order of arrival
    BATCH_RUNNING = "batch_running"  # nobody joins a static or dynamic batch
    BATCH_FORMING = "batch_forming"  # the batch is not full, and its time is not up
    BEHIND_BATCH = "behind_batch"  # the batch was formed without it
    BLOCKS_RETURNING = "blocks_returning"  # the last batch's blocks are not back yet
    ISOLATED = "isolated"  # somebody here may crash the worker, and runs alone
    QUEUE_TIMEOUT = "queue_timeout"  # it waited longer than its queue policy lets it: rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The planner's numbers. Every one has an effect on plans, each with its test."""

    token_budget: int = 512  # most tokens computed in one step, prefill and decode together
    max_sequences: int = 64  # most live sequences on the worker
    chunk_size: int = 0  # most prompt tokens of one request in a step; 0 = the budget's, -1 = any
    max_step_tokens: int = 0  # that the worker takes; 0 = no limit of its own
    max_worker_sequences: int = 0  # likewise
    max_bypasses: int = 16  # so many requests may pass a blocked head, then none
    max_prompt_skips: int = 8  # a prompt passed over in so many steps goes before shorter ones
    max_partial_prompts: int = 0  # prompts that a step may leave half computed; 0 = unbounded
    watermark: float = 0.02  # share of blocks kept free at admission while anything runs

    def __post_init__(self) -> None:
        for name in ("token_budget", "max_sequences"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in (
            "max_step_tokens",
            "max_worker_sequences",
            "max_bypasses",
            "max_prompt_skips",
            "max_partial_prompts",
        ):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.chunk_size < WHOLE_PREFILL:
            raise ValueError(f"chunk_size must be at least {WHOLE_PREFILL}, got {self.chunk_size}")
        if not 0 <= self.watermark < 1:
            raise ValueError(f"watermark must be in [0, 1), got {self.watermark}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSequence:
    """A live sequence as it will stand when all plans in flight have run."""

    request_id: str
    priority: int = 0  # lower is served first
    rank: int = 0  # order of arrival among the requests here: lower came first
    tenant: str = ""
    num_prompt_tokens: int
    num_output_tokens: int = 0
    num_computed_tokens: int = 0
    max_tokens: int
    num_charged_blocks: int  # blocks that it holds or that plans in flight make it hold
    num_skips: int = 0  # steps in a row that skipped it, AWAITS_RESULT aside
    is_suspect: bool = False  # it may crash its worker: nobody runs beside it until its next token
    is_ending: bool = False  # ended, release not yet reported: it gets nothing more, holds no place

    @property
    def num_tokens(self) -> int:
        return self.num_prompt_tokens + self.num_output_tokens

    @property
    def num_pending_tokens(self) -> int:
        return self.num_tokens - self.num_computed_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRequest:
    request_id: str
    priority: int = 0
    tenant: str = ""
    num_prompt_tokens: int
    num_output_tokens: int = 0  # in the log already: recomputed with the prompt
    max_tokens: int
    age_ms: int = 0  # when the window was read
    queue_timeout_ms: int = 0  # of its own, for a dynamic batcher that allows it; 0 = none
    num_bypasses: int = 0  # requests behind it that were admitted here while it was blocked
    attempts: int = 0  # crashes of its worker without a new token
    prefix_hashes: tuple[int, ...] = ()  # of its prompt's beginnings, as `shared.prefixes` has them

    @property
    def num_tokens(self) -> int:
        return self.num_prompt_tokens + self.num_output_tokens

    @property
    def is_suspect(self) -> bool:
        return self.attempts >= SUSPECT_ATTEMPTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """`num_available_blocks`: last reported free or cached, less what plans in flight may take.
    Negative: they want more than there is, and the worker will refuse rows of theirs.

    Blocks given back by a release count only after the worker has reported them. Until then their
    sequence stays in `running` as ending, or they are in `num_returning_blocks`: nobody is admitted
    into them, but nobody is preempted for what they will cover. The plan made from a snapshot
    releases all that is ending before it admits.
    """

    running: tuple[RunningSequence, ...] = ()
    waiting: tuple[WaitingRequest, ...] = ()  # the queue window, in rank order
    num_waiting_beyond: int = 0  # waiting requests behind the window
    num_waiting_unfit: int = 0  # waiting requests that can never run here, left out of the window
    limits: Limits = field(default_factory=Limits)
    block_size: int = 16
    num_total_blocks: int
    num_available_blocks: int
    num_returning_blocks: int = 0  # of sequences gone from `running`, release not yet reported
    max_model_tokens: int = 0  # longest sequence the worker's model allows; 0 = no limit
    window_age_ms: int = 0  # since the window was read: all waiting requests are so much older
    ms_since_admission: int = NEVER_MS  # since somebody was let in here
    known_prefixes: Collection[int] = ()  # hashes of beginnings that the worker has, or will have
    coming_prefixes: Collection[int] = ()  # of live prompts, not in any plan yet
    is_first_worker: bool = True  # the one that answers where an order is to be preserved

    def age_ms(self, request: WaitingRequest) -> int:
        return request.age_ms + self.window_age_ms


@dataclass(frozen=True, slots=True)
class PlannedChunk:
    """Tokens of a running sequence in this step."""

    request_id: str
    num_tokens: int
    num_new_blocks: int
    is_decode: bool


@dataclass(frozen=True, slots=True)
class PlannedClaim:
    """A waiting request to be admitted: charged prompt and log at once."""

    request_id: str
    num_tokens: int  # of its first chunk
    num_new_blocks: int
    num_expected_cached_tokens: int = 0  # that the prefix cache should bring


@dataclass(frozen=True, slots=True)
class Skipped:
    """`request_id` empty: so many requests share the reason."""

    request_id: str
    reason: SkipReason
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """All the planner's choices for one step."""

    chunks: tuple[PlannedChunk, ...] = ()
    claims: tuple[PlannedClaim, ...] = ()
    claim_at_least: int = 1  # fewer still waiting: claim none
    preemptions: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    bypassed: tuple[str, ...] = ()  # blocked requests, once for each claim behind them
    forms_batch: bool = False  # the claims are one static or dynamic batch
    rejects: tuple[str, ...] = ()  # waiting requests to be ended: their queue timeout passed
    wait_ms: int | None = None  # decide anew after so long, though nothing happens

    @property
    def num_tokens(self) -> int:
        return sum(c.num_tokens for c in self.chunks) + sum(c.num_tokens for c in self.claims)
