"""Whether a request fits: ever, on a worker of some description, and now, into the blocks left.

One formula, at submit and at run time: what `can_ever_run` lets in never blocks a queue for ever.
Knows nothing of turns or budgets.
"""

from enum import StrEnum
from math import ceil

from scheduler_service.planning.snapshot import RunningSequence, Snapshot, WaitingRequest
from shared.blocks import blocks_for, blocks_to_run


class AdmissionLimit(StrEnum):
    """What a request that can never run exceeds."""

    MODEL_TOKENS = "model_tokens"
    CACHE_BLOCKS = "cache_blocks"


def exceeded_limit(
    num_prompt_tokens: int,
    max_tokens: int,
    *,
    block_size: int,
    num_total_blocks: int,
    max_model_tokens: int,
) -> AdmissionLimit | None:
    """None: it can run on such a worker, alone if need be. `max_model_tokens` 0: no limit."""
    if max_model_tokens and num_prompt_tokens + max_tokens > max_model_tokens:
        return AdmissionLimit.MODEL_TOKENS
    if blocks_to_run(num_prompt_tokens, max_tokens, block_size) > num_total_blocks:
        return AdmissionLimit.CACHE_BLOCKS
    return None


def can_ever_run(
    num_prompt_tokens: int,
    max_tokens: int,
    *,
    block_size: int,
    num_total_blocks: int,
    max_model_tokens: int,
) -> bool:
    limit = exceeded_limit(
        num_prompt_tokens,
        max_tokens,
        block_size=block_size,
        num_total_blocks=num_total_blocks,
        max_model_tokens=max_model_tokens,
    )
    return limit is None


def capacity(*, block_size: int, num_total_blocks: int, max_model_tokens: int) -> int:
    """Most prompt and new tokens together of a request that `can_ever_run` lets in."""
    most = num_total_blocks * block_size + 1  # the last sampled token needs no place
    return min(most, max_model_tokens) if max_model_tokens else most


def is_unfit(request: WaitingRequest, snapshot: Snapshot) -> bool:
    """It can never run on this worker."""
    return not can_ever_run(
        request.num_prompt_tokens,
        request.max_tokens,
        block_size=snapshot.block_size,
        num_total_blocks=snapshot.num_total_blocks,
        max_model_tokens=snapshot.max_model_tokens,
    )


def watermark_blocks(snapshot: Snapshot) -> int:
    """Blocks that an admission leaves free while anything runs."""
    return ceil(snapshot.limits.watermark * snapshot.num_total_blocks)


def will_grow(sequence: RunningSequence | WaitingRequest, num_blocks: int, block_size: int) -> bool:
    """With so many blocks it does not yet hold all that it can come to need."""
    return num_blocks < blocks_to_run(sequence.num_prompt_tokens, sequence.max_tokens, block_size)


def most_blocks(request: RunningSequence | WaitingRequest, block_size: int) -> int:
    """All blocks that it can come to need."""
    return blocks_to_run(request.num_prompt_tokens, request.max_tokens, block_size)


def promised_blocks(sequence: RunningSequence, snapshot: Snapshot) -> int:
    """What it can still come to need beyond the blocks it is charged for."""
    return max(0, most_blocks(sequence, snapshot.block_size) - sequence.num_charged_blocks)


def admission_blocks(request: WaitingRequest, block_size: int) -> int:
    """Blocks to charge for an admission: prompt, log, and the token sampled after them.

    The worker takes those of prompt and log at once. The plan after it, sent before anyone knows of
    a prefix hit, may compute the sampled token already. (With more than two plans in flight, one
    more token each: then the worker may come to refuse a row, which is planned again.)
    """
    most = request.num_prompt_tokens + request.max_tokens - 1
    return blocks_for(min(request.num_tokens + 1, most), block_size)
