"""Who may come in, one by one, beside the sequences that run: the door of continuous batching."""

import sys

from scheduler_service.planning import admission, ordering
from scheduler_service.planning.snapshot import (
    PlannedClaim,
    SkipReason,
    Snapshot,
    WaitingRequest,
)
from scheduler_service.planning.strategies.draft import Draft
from scheduler_service.planning.strategies.running import Live


def admit_nobody(snapshot: Snapshot, draft: Draft, reason: SkipReason) -> None:
    for request in snapshot.waiting:
        is_unfit = admission.is_unfit(request, snapshot)
        draft.skip(request.request_id, SkipReason.UNFIT_HERE if is_unfit else reason)


def admit(snapshot: Snapshot, live: Live, draft: Draft, *, is_guaranteed: bool = False) -> None:
    """Claim waiting requests in rank order while tokens, places and blocks last.

    `is_guaranteed`: only into blocks that nobody inside can come to need.
    """
    door = _Door(snapshot, live, draft, is_guaranteed)
    door.is_isolated = any(sequence.is_suspect for sequence in live.sequences())
    for request in ordering.rank_order(snapshot.waiting):
        reason = door.reason_to_wait(request)
        if reason is None:
            door.let_in(request)
        else:
            draft.skip(request.request_id, reason)
            if reason is not SkipReason.UNFIT_HERE:
                door.leave_blocked(request)


class _Door:
    """Who may come in, and past whom.

    A request that has to wait though it fits this worker is blocked; once `max_bypasses` requests
    behind it have been let in, over all steps, nobody passes it any more.
    """

    def __init__(self, snapshot: Snapshot, live: Live, draft: Draft, is_guaranteed: bool) -> None:
        self._snapshot = snapshot
        self._live = live
        self._draft = draft
        self._num_sequences = len(live)
        self._watermark = admission.watermark_blocks(snapshot)
        self._growth: int | None = None  # counted when first wanted
        self._unpromised_blocks = sys.maxsize
        if is_guaranteed:
            promised = sum(admission.promised_blocks(s, snapshot) for s in live.sequences())
            self._unpromised_blocks = snapshot.num_available_blocks - promised
        self._blocked: list[str] = []
        self._passes_left = sys.maxsize
        self.is_isolated = False  # a suspect is inside: nobody comes in beside it

    def reason_to_wait(self, request: WaitingRequest) -> SkipReason | None:
        if admission.is_unfit(request, self._snapshot):
            return SkipReason.UNFIT_HERE
        if self._must_be_apart(request):
            return SkipReason.ISOLATED
        return self._lack(request) or (
            SkipReason.BEHIND_BLOCKED_HEAD if self._passes_left < 1 else None
        )

    def _must_be_apart(self, request: WaitingRequest) -> bool:
        return self.is_isolated or (request.is_suspect and not self._is_empty)

    def _lack(self, request: WaitingRequest) -> SkipReason | None:
        """What there is too little of for it."""
        if self._num_sequences >= self._snapshot.limits.max_sequences:
            return SkipReason.SEQUENCE_CAP
        if self._draft.tokens_left < 1:
            return SkipReason.OVER_TOKEN_BUDGET
        if self._lacks_blocks(request):
            return SkipReason.NO_FREE_BLOCKS
        if self._draft.awaits_prefix(request):
            return SkipReason.AWAITS_PREFIX
        if self._draft.chunk_for(self._num_new_tokens(request)) is None:
            return self._draft.cut_reason
        return None

    @property
    def _is_empty(self) -> bool:
        """Also of those that have ended: a plan in flight may compute them still."""
        return not self._snapshot.running and not self._draft.claims

    def _lacks_blocks(self, request: WaitingRequest) -> bool:
        block_size = self._snapshot.block_size
        num_blocks = admission.admission_blocks(request, block_size)
        is_short = num_blocks + self._reserve(request, num_blocks) > self._draft.blocks_left
        return is_short or admission.most_blocks(request, block_size) > self._unpromised_blocks

    def let_in(self, request: WaitingRequest) -> None:
        num_new_tokens = self._num_new_tokens(request)
        num_tokens = self._draft.chunk_for(num_new_tokens)
        assert num_tokens, f"{request.request_id} is let in without tokens"
        num_blocks = admission.admission_blocks(request, self._snapshot.block_size)
        if self._growth is not None:
            self._growth += admission.will_grow(request, num_blocks, self._snapshot.block_size)
        self._draft.take(num_tokens, num_new_tokens, num_blocks)
        num_cached = request.num_tokens - num_new_tokens
        claim = PlannedClaim(request.request_id, num_tokens, num_blocks, num_cached)
        self._draft.claims.append(claim)
        self._draft.note_prefixes(request, num_cached + num_tokens)
        self._draft.bypassed += self._blocked
        self._num_sequences += 1
        self._passes_left -= 1
        self.is_isolated = request.is_suspect
        self._unpromised_blocks -= admission.most_blocks(request, self._snapshot.block_size)

    def _num_new_tokens(self, request: WaitingRequest) -> int:
        return request.num_tokens - self._draft.expected_cached_tokens(request)

    def leave_blocked(self, request: WaitingRequest) -> None:
        passes_left = self._snapshot.limits.max_bypasses - request.num_bypasses
        self._blocked.append(request.request_id)
        self._passes_left = min(self._passes_left, passes_left)

    def _reserve(self, request: WaitingRequest, num_blocks: int) -> int:
        """Blocks to leave free: none if it runs alone, else the watermark.

        One that ran before, likely preempted, also leaves the next block of everyone, itself
        included: else it would be the next victim.
        """
        if not self._num_sequences:
            return 0
        if not request.num_output_tokens:
            return self._watermark
        block_size = self._snapshot.block_size
        if self._growth is None:
            self._growth = self._count_growth()
        growth = self._growth + admission.will_grow(request, num_blocks, block_size)
        return max(self._watermark, growth)

    def _count_growth(self) -> int:
        """Sequences, those just let in included, that will want one more block."""
        block_size = self._snapshot.block_size
        let_in = {claim.request_id for claim in self._draft.claims}
        return sum(
            admission.will_grow(s, s.num_charged_blocks, block_size) for s in self._live.sequences()
        ) + sum(
            admission.will_grow(r, admission.admission_blocks(r, block_size), block_size)
            for r in self._snapshot.waiting
            if r.request_id in let_in
        )
