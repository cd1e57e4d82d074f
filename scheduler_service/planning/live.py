"""A live sequence as its driver sees it: what has happened, and what plans in flight will make of it.

Knows nothing of Redis, workers' protocol or time.
"""

from dataclasses import dataclass
from enum import StrEnum

from scheduler_service.planning.outcome import End, TokenRow
from scheduler_service.planning.request import SUSPECT_ATTEMPTS
from scheduler_service.planning.snapshot import RunningSequence
from shared.blocks import blocks_for
from shared.types import Admission, Assignment, ReleaseReason, SamplingParams, StopRules, TokenIds


class Ending(StrEnum):
    """Why a sequence is about to leave the worker."""

    FINISHED = "finished"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    STALE = "stale"
    FAILED = "failed"


RELEASE_REASON = {
    Ending.FINISHED: ReleaseReason.FINISHED,
    Ending.CANCELLED: ReleaseReason.CANCELLED,
    Ending.PREEMPTED: ReleaseReason.PREEMPTED,
    Ending.STALE: ReleaseReason.STALE,
    Ending.FAILED: ReleaseReason.FAILED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Admissible:
    """A claimed request with all that its admission needs."""

    request_id: str
    assignment: Assignment
    prompt_ids: TokenIds
    log: TokenIds
    sampling: SamplingParams
    stop: StopRules
    include_stop: bool = False
    cache_salt: bytes = b""
    priority: int = 0
    tenant: str = ""
    attempts: int = 0  # crashes of its worker without progress
    is_held: bool = False  # its answer is held back until its batch has ended


@dataclass(slots=True, kw_only=True)
class LiveSequence:
    request: Admissible
    handle: int
    rank: int
    output_ids: list[int]  # all that results brought, committed or not
    num_committed: int  # output ids handed to the committer
    num_admitted_tokens: int  # charged at once when admitted here
    num_computed_tokens: int = 0
    ending: Ending | None = None
    release_step: int = 0  # the plan that releases it; 0 = not sent
    is_admitted: bool = False  # its first row has come
    num_cached_tokens: int = 0  # found in the prefix cache at admission
    num_skips: int = 0
    # As they will be when all plans in flight have run:
    planned_computed_tokens: int = 0
    planned_output_tokens: int = 0
    num_charged_blocks: int = 0
    num_admission_blocks: int = 0
    num_known_blocks: int = 0  # as a worker reported them when it was taken over
    prefix_hashes: tuple[int, ...] = ()
    num_known_prefixes: int = 0  # of those, computed or in a plan
    num_expected_cached_tokens: int = 0  # until its first row says what was found
    num_recompute_tokens: int = 0  # of those admitted, computed before somewhere
    is_replay: bool = False  # computed before by a worker that died

    @property
    def request_id(self) -> str:
        return self.request.request_id

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.request.prompt_ids)

    @property
    def is_suspect(self) -> bool:
        has_new_token = len(self.output_ids) > len(self.request.log)
        return self.request.attempts >= SUSPECT_ATTEMPTS and not has_new_token

    def take_row(self, end: End | None, num_cached_tokens: int = -1) -> TokenRow:
        """The ids that the committer has not had yet, and the end."""
        index = self.num_committed
        self.num_committed = len(self.output_ids)
        return TokenRow(
            request_id=self.request.request_id,
            assignment=self.request.assignment,
            index=index,
            token_ids=tuple(self.output_ids[index:]),
            end=end,
            num_cached_tokens=num_cached_tokens,
            is_held=self.request.is_held,
        )

    def num_held_blocks(self, block_size: int) -> int:
        """As the worker's last report counts them."""
        if not self.is_admitted:
            return 0
        # A sequence taken over was admitted by another driver: its worker says what it held then.
        admitted = self.num_known_blocks or blocks_for(self.num_admitted_tokens, block_size)
        return max(admitted, blocks_for(self.num_computed_tokens, block_size))

    def restart_prediction(self, block_size: int) -> None:
        self.planned_computed_tokens = (
            self.num_computed_tokens if self.is_admitted else self.num_expected_cached_tokens
        )
        self.planned_output_tokens = len(self.output_ids)
        self.num_charged_blocks = (
            self.num_held_blocks(block_size) if self.is_admitted else self.num_admission_blocks
        )

    def predict(self, max_num_tokens: int, block_size: int) -> int:
        """What a planned chunk will do, as the worker clamps it. Returns its tokens."""
        if self.planned_output_tokens >= self.request.stop.max_tokens:
            return 0  # it will have finished by then
        num_tokens = self.num_prompt_tokens + self.planned_output_tokens
        computed = min(max_num_tokens, num_tokens - self.planned_computed_tokens)
        self.planned_computed_tokens += computed
        if self.planned_computed_tokens == num_tokens:
            self.planned_output_tokens += 1
        self.num_charged_blocks = max(
            self.num_charged_blocks, blocks_for(self.planned_computed_tokens, block_size)
        )
        return computed

    def admission(self) -> Admission:
        """What tells a worker of it, with all that is in its log."""
        request = self.request
        return Admission(
            request_id=request.request_id,
            assignment=request.assignment,
            handle=self.handle,
            token_ids=request.prompt_ids + request.log,
            num_prompt_tokens=self.num_prompt_tokens,
            sampling=request.sampling,
            stop=request.stop,
            cache_salt=request.cache_salt,
        )

    def as_running(self) -> RunningSequence:
        request = self.request
        return RunningSequence(
            request_id=request.request_id,
            priority=request.priority,
            rank=self.rank,
            tenant=request.tenant,
            num_prompt_tokens=len(request.prompt_ids),
            num_output_tokens=self.planned_output_tokens,
            num_computed_tokens=self.planned_computed_tokens,
            max_tokens=request.stop.max_tokens,
            num_charged_blocks=self.num_charged_blocks,
            num_skips=self.num_skips,
            is_suspect=self.is_suspect,
            is_ending=self.ending is not None,
        )
