"""A sequence: the worker's live copy of a request, its tokens and its block table.

Knows nothing of tensors, of other sequences, or of how blocks are handed out.
"""

from dataclasses import dataclass, field

from shared.blocks import blocks_for
from shared.types import (
    Admission,
    Assignment,
    FinishReason,
    ResidentSequence,
    SamplingParams,
    StopRules,
)
from worker_service.engine.prefix_cache import ROOT, BlockKey


@dataclass(slots=True, kw_only=True)
class Sequence:
    """Tokens [0, num_computed_tokens) are in the cache, the rest up to num_tokens are pending."""

    request_id: str
    assignment: Assignment
    handle: int
    num_prompt_tokens: int
    sampling: SamplingParams
    stop: StopRules
    stop_ids: frozenset[int]
    cache_salt: bytes
    token_ids: list[int]
    num_computed_tokens: int = 0
    block_table: list[int] = field(default_factory=list)  # in token order
    block_keys: list[BlockKey] = field(default_factory=list)  # of its first blocks, all published
    num_cached_tokens: int = 0  # found at admission and not yet reported
    finish: FinishReason | None = None

    @classmethod
    def admitted(cls, admission: Admission) -> "Sequence":
        return cls(
            request_id=admission.request_id,
            assignment=admission.assignment,
            handle=admission.handle,
            num_prompt_tokens=admission.num_prompt_tokens,
            sampling=admission.sampling,
            stop=admission.stop,
            stop_ids=frozenset(admission.stop.stop_token_ids),
            cache_salt=admission.cache_salt,
            token_ids=list(admission.token_ids),
        )

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_pending_tokens(self) -> int:
        """Nothing is pending for a sequence that has finished."""
        return 0 if self.finish else len(self.token_ids) - self.num_computed_tokens

    @property
    def last_key(self) -> BlockKey:
        return self.block_keys[-1] if self.block_keys else ROOT

    def can_stop(self) -> bool:
        """May the next token be a stop token?"""
        return self.num_output_tokens >= self.stop.min_tokens

    def num_blocks_short(self, num_computed_tokens: int, block_size: int) -> int:
        """Blocks it lacks to have so many tokens computed."""
        return max(0, blocks_for(num_computed_tokens, block_size) - len(self.block_table))

    def append(self, token_id: int) -> None:
        """Take a sampled token; finish if it ends the sequence. A stop token wins over length."""
        may_stop = self.can_stop()
        self.token_ids.append(token_id)
        if may_stop and token_id in self.stop_ids:
            self.finish = FinishReason.STOP_TOKEN
        elif self.num_output_tokens >= self.stop.max_tokens:
            self.finish = FinishReason.LENGTH

    def resident(self) -> ResidentSequence:
        return ResidentSequence(
            request_id=self.request_id,
            assignment=self.assignment,
            handle=self.handle,
            num_prompt_tokens=self.num_prompt_tokens,
            num_computed_tokens=self.num_computed_tokens,
            output_ids=tuple(self.token_ids[self.num_prompt_tokens :]),
            num_held_blocks=len(self.block_table),
            finish=self.finish,
        )
