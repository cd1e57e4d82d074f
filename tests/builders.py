"""Values for tests, with defaults for all that a test does not care about."""

from typing import Any

from scheduler_service.planning.snapshot import Limits, RunningSequence, Snapshot, WaitingRequest
from shared.blocks import blocks_for

BLOCK_SIZE = 16


def make_running(request_id: str = "r", **fields: Any) -> RunningSequence:
    """By default a prompt of 32 tokens, computed, with one output token pending and room for it."""
    fields.setdefault("num_prompt_tokens", 32)
    fields.setdefault("max_tokens", 64)
    if "num_computed_tokens" not in fields:
        fields.setdefault("num_output_tokens", 1)
        num_tokens = fields["num_prompt_tokens"] + fields["num_output_tokens"]
        fields["num_computed_tokens"] = num_tokens - 1
    num_tokens = fields["num_prompt_tokens"] + fields.get("num_output_tokens", 0)
    fields.setdefault("num_charged_blocks", blocks_for(num_tokens, BLOCK_SIZE))
    return RunningSequence(request_id=request_id, **fields)


def make_prompt(request_id: str, num_prompt_tokens: int, **fields: Any) -> RunningSequence:
    """A live sequence of which nothing is computed yet, charged for its whole prompt."""
    fields.setdefault("num_computed_tokens", 0)
    return make_running(request_id, num_prompt_tokens=num_prompt_tokens, **fields)


def make_waiting(request_id: str = "w", **fields: Any) -> WaitingRequest:
    fields.setdefault("num_prompt_tokens", 32)
    fields.setdefault("max_tokens", 64)
    return WaitingRequest(request_id=request_id, **fields)


def make_snapshot(
    running: Any = (), waiting: Any = (), *, limits: Limits | None = None, **fields: Any
) -> Snapshot:
    """By default a worker with 1,000 blocks, of which those not charged are available."""
    fields.setdefault("num_total_blocks", 1000)
    if "num_available_blocks" not in fields:
        num_charged = sum(sequence.num_charged_blocks for sequence in running)
        fields["num_available_blocks"] = fields["num_total_blocks"] - num_charged
    return Snapshot(
        running=tuple(running),
        waiting=tuple(waiting),
        limits=limits or Limits(watermark=0.0),
        block_size=fields.pop("block_size", BLOCK_SIZE),
        **fields,
    )
