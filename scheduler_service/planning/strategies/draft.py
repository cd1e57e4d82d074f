"""A decision in the making: what a strategy has given so far, and what is left to give.

Knows nothing of whose turn it is.
"""

import sys
from typing import Any

from scheduler_service.planning.snapshot import (
    Decision,
    PlannedChunk,
    PlannedClaim,
    Skipped,
    SkipReason,
    Snapshot,
    WaitingRequest,
)
from shared.prefixes import PREFIX_LENGTHS, longest_known
from shared.strategy import WHOLE_PREFILL

WORTH_WAITING_TOKENS = 64  # of a shared beginning: less is computed twice sooner than waited for


class Draft:
    def __init__(self, snapshot: Snapshot) -> None:
        limits = snapshot.limits
        self._limits = limits
        self.tokens_left = limits.token_budget
        self.blocks_left = snapshot.num_available_blocks
        self.chunk_size = limits.chunk_size or limits.token_budget
        self._is_whole = limits.chunk_size == WHOLE_PREFILL
        self._num_prompts = 0
        self.num_decodes = 0
        self._snapshot = snapshot
        self.partial_places = limits.max_partial_prompts or sys.maxsize
        self.chunks: list[PlannedChunk] = []
        self.claims: list[PlannedClaim] = []
        self.preemptions: list[str] = []
        self._known_here: set[int] = set()  # beginnings that this step's claims bring
        self._coming_here: set[int] = set()
        self.skipped: list[Skipped] = []
        self.bypassed: list[str] = []

    def expected_cached_tokens(self, request: WaitingRequest) -> int:
        """Tokens that the prefix cache should bring, whole blocks of them."""
        if not request.prefix_hashes:
            return 0
        block_size = self._snapshot.block_size
        return longest_known(request.prefix_hashes, self._is_known) // block_size * block_size

    def _is_known(self, prefix_hash: int) -> bool:
        return prefix_hash in self._snapshot.known_prefixes or prefix_hash in self._known_here

    def _is_known_soon(self, prefix_hash: int) -> bool:
        is_coming = (
            prefix_hash in self._snapshot.coming_prefixes or prefix_hash in self._coming_here
        )
        return is_coming or self._is_known(prefix_hash)

    def note_prefixes(self, request: WaitingRequest, num_tokens: int) -> None:
        """It comes in, and this step computes so many of its first tokens, cached ones included."""
        for length, prefix_hash in zip(PREFIX_LENGTHS, request.prefix_hashes, strict=False):
            (self._known_here if length <= num_tokens else self._coming_here).add(prefix_hash)

    def awaits_prefix(self, request: WaitingRequest) -> bool:
        """A live prompt will soon have computed much more of its beginning than is there now."""
        if not (self._snapshot.coming_prefixes or self._coming_here) or not request.prefix_hashes:
            return False
        soon = longest_known(request.prefix_hashes, self._is_known_soon)
        return soon - self.expected_cached_tokens(request) >= WORTH_WAITING_TOKENS

    def skip(self, request_id: str, reason: SkipReason, count: int = 1) -> None:
        self.skipped.append(Skipped(request_id, reason, count))

    def chunk_for(self, num_pending_tokens: int) -> int | None:
        """Tokens that a prompt gets; `cut_reason` says why None."""
        if self._is_whole:
            return self._whole_chunk_for(num_pending_tokens)
        num_tokens = min(num_pending_tokens, self.chunk_size, self.tokens_left)
        if num_tokens < num_pending_tokens and self.partial_places < 1:
            return None
        return num_tokens

    @property
    def cut_reason(self) -> SkipReason:
        return SkipReason.PREFILL_NOT_CUT if self._is_whole else SkipReason.INTERLEAVE_BOUND

    def _whole_chunk_for(self, num_pending_tokens: int) -> int | None:
        """All or nothing. One that the budget never holds goes beside decodes alone, within what the
        worker takes in a step."""
        if num_pending_tokens <= self.tokens_left:
            return num_pending_tokens
        limits = self._limits
        if self._num_prompts or num_pending_tokens <= limits.token_budget - self.num_decodes:
            return None
        most = limits.max_step_tokens or sys.maxsize
        return min(num_pending_tokens, most - self.num_decodes)

    def take(self, num_tokens: int, num_pending_tokens: int, num_new_blocks: int) -> None:
        self._num_prompts += 1
        self.tokens_left = max(0, self.tokens_left - num_tokens)
        self.blocks_left -= num_new_blocks
        self.partial_places -= num_tokens < num_pending_tokens

    def decision(self, **fields: Any) -> Decision:
        """`fields`: what only some strategies decide."""
        snapshot = self._snapshot
        if snapshot.num_waiting_beyond:
            self.skip("", SkipReason.BEYOND_WINDOW, snapshot.num_waiting_beyond)
        if snapshot.num_waiting_unfit:
            self.skip("", SkipReason.UNFIT_HERE, snapshot.num_waiting_unfit)
        return Decision(
            chunks=tuple(self.chunks),
            claims=tuple(self.claims),
            preemptions=tuple(self.preemptions),
            skipped=tuple(self.skipped),
            bypassed=tuple(self.bypassed),
            **fields,
        )
