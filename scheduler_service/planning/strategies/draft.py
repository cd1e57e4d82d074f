"""A decision in the making: what a strategy has given so far, and what is left to give.

Knows nothing of whose turn it is.
"""

import sys

from scheduler_service.planning.snapshot import (
    Decision,
    PlannedChunk,
    PlannedClaim,
    Skipped,
    SkipReason,
    Snapshot,
)


class Draft:
    def __init__(self, snapshot: Snapshot) -> None:
        limits = snapshot.limits
        self.tokens_left = limits.token_budget
        self.blocks_left = snapshot.num_available_blocks
        self.chunk_size = limits.chunk_size or limits.token_budget
        self.partial_places = limits.max_partial_prompts or sys.maxsize
        self.chunks: list[PlannedChunk] = []
        self.claims: list[PlannedClaim] = []
        self.preemptions: list[str] = []
        self.skipped: list[Skipped] = []
        self.bypassed: list[str] = []

    def skip(self, request_id: str, reason: SkipReason, count: int = 1) -> None:
        self.skipped.append(Skipped(request_id, reason, count))

    def chunk_for(self, num_pending_tokens: int) -> int | None:
        """Tokens that a prompt gets. None: it would be left half computed, and enough are."""
        num_tokens = min(num_pending_tokens, self.chunk_size, self.tokens_left)
        if num_tokens < num_pending_tokens and self.partial_places < 1:
            return None
        return num_tokens

    def take(self, num_tokens: int, num_pending_tokens: int, num_new_blocks: int) -> None:
        self.tokens_left -= num_tokens
        self.blocks_left -= num_new_blocks
        self.partial_places -= num_tokens < num_pending_tokens

    def decision(self) -> Decision:
        return Decision(
            chunks=tuple(self.chunks),
            claims=tuple(self.claims),
            preemptions=tuple(self.preemptions),
            skipped=tuple(self.skipped),
            bypassed=tuple(self.bypassed),
        )
