"""Continuous batching: each step's batch is formed anew.

Decodes first, then unfinished prompts, then waiting requests; and if the blocks run short, somebody
gives way. Knows nothing of steps before or after this one.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

from scheduler_service.planning import admission, ordering
from scheduler_service.planning.snapshot import (
    Decision,
    PlannedChunk,
    PlannedClaim,
    RunningSequence,
    SkipReason,
    Snapshot,
    WaitingRequest,
)
from scheduler_service.planning.strategies.draft import Draft
from shared.blocks import blocks_for


@dataclass(frozen=True, slots=True)
class ContinuousStrategy:
    def plan(self, snapshot: Snapshot) -> Decision:
        draft = Draft(snapshot)
        live = _survey(snapshot)
        is_short = _make_room(live, draft)
        for sequence in live.idle:
            draft.skip(sequence.request_id, SkipReason.AWAITS_RESULT)
        _give_decodes(live, draft)
        _give_prompts(live, draft, snapshot)
        if is_short:
            _admit_nobody(snapshot, draft)
        else:
            _admit(snapshot, live, draft)
        if snapshot.num_waiting_beyond:
            draft.skip("", SkipReason.BEYOND_WINDOW, snapshot.num_waiting_beyond)
        if snapshot.num_waiting_unfit:
            draft.skip("", SkipReason.UNFIT_HERE, snapshot.num_waiting_unfit)
        return draft.decision()


@dataclass(slots=True)
class _Live:
    """The sequences that are not ending, by what this step can do for them."""

    decodes: list[RunningSequence] = field(default_factory=list)  # one pending token
    prompts: list[RunningSequence] = field(default_factory=list)  # more than one
    idle: list[RunningSequence] = field(default_factory=list)  # nothing left to give
    lacking: dict[str, int] = field(default_factory=dict)  # blocks that pending tokens want
    num_returning_blocks: int = 0  # of those that end by themselves, and of those ending

    def __len__(self) -> int:
        return len(self.decodes) + len(self.prompts) + len(self.idle)


def _survey(snapshot: Snapshot) -> _Live:
    """Sort the sequences by what they can get, and note the blocks that they lack."""
    live = _Live(num_returning_blocks=snapshot.num_returning_blocks)
    block_size = snapshot.block_size
    for sequence in snapshot.running:
        if sequence.is_ending:
            live.num_returning_blocks += sequence.num_charged_blocks
            continue
        num_tokens = sequence.num_prompt_tokens + sequence.num_output_tokens
        num_pending_tokens = num_tokens - sequence.num_computed_tokens
        if num_pending_tokens <= 0 or sequence.num_output_tokens >= sequence.max_tokens:
            live.idle.append(sequence)
            continue
        (live.decodes if num_pending_tokens == 1 else live.prompts).append(sequence)
        num_lacking = -(-num_tokens // block_size) - sequence.num_charged_blocks
        if num_lacking > 0:
            live.lacking[sequence.request_id] = num_lacking
    return live


def _make_room(live: _Live, draft: Draft) -> bool:
    """True if blocks do not cover what the sequences lack: some give way, some wait.

    Blocks given up now can be used only when the worker has reported them, so this step
    gives out what there is, to those first who would give way last.
    """
    if sum(live.lacking.values()) <= draft.blocks_left:
        return False
    finishing = [s for s in live.idle if s.num_output_tokens >= s.max_tokens]
    live.num_returning_blocks += sum(s.num_charged_blocks for s in finishing)
    ends_by_itself = {s.request_id for s in finishing}
    candidates = ordering.preemption_order(
        [
            s
            for s in (*live.decodes, *live.prompts, *live.idle)
            if s.request_id not in ends_by_itself
        ]
    )
    if len(candidates) == 1 and not live.num_returning_blocks:
        # Admission saw that it fits alone and nothing is to come back, so it must hold what it
        # seems to lack: after a takeover the account of blocks may be too low.
        live.lacking.clear()
        return True
    gone = _preempt(candidates, live, draft)
    gone |= _hold_back((s for s in reversed(candidates) if s.request_id not in gone), live, draft)
    live.decodes = [s for s in live.decodes if s.request_id not in gone]
    live.prompts = [s for s in live.prompts if s.request_id not in gone]
    live.idle = [s for s in live.idle if s.request_id not in gone]
    return True


def _preempt(candidates: list[RunningSequence], live: _Live, draft: Draft) -> set[str]:
    """Choose victims until what comes back will cover what the others lack.

    A victim makes room for others: one that alone lacks blocks waits instead. The last candidate
    stays, and can go on once all blocks are back: admission saw that it fits alone.
    """
    victims: set[str] = set()
    shortage = sum(live.lacking.values()) - draft.blocks_left - live.num_returning_blocks
    for sequence in candidates[:-1]:
        own = live.lacking.get(sequence.request_id, 0)
        if shortage - own <= 0:
            break
        shortage -= own + sequence.num_charged_blocks
        victims.add(sequence.request_id)
        draft.preemptions.append(sequence.request_id)
        draft.skip(sequence.request_id, SkipReason.PREEMPTED)
    return victims


def _hold_back(sequences: Iterable[RunningSequence], live: _Live, draft: Draft) -> set[str]:
    """Those, in this order, whose lack the blocks that are left do not cover."""
    blocks_left = draft.blocks_left
    held: set[str] = set()
    for sequence in sequences:
        num_lacking = live.lacking.get(sequence.request_id, 0)
        if not num_lacking or num_lacking <= blocks_left:
            blocks_left -= num_lacking
            continue
        held.add(sequence.request_id)
        draft.skip(sequence.request_id, SkipReason.NO_FREE_BLOCKS)
    return held


def _give_decodes(live: _Live, draft: Draft) -> None:
    """Every sequence with one pending token gets it; they take turns if the budget is smaller."""
    decodes = live.decodes
    if len(decodes) > draft.tokens_left:
        decodes = ordering.turn_order(decodes)
    served = decodes[: draft.tokens_left]
    lacking = live.lacking
    for sequence in served:
        request_id = sequence.request_id
        num_new_blocks = lacking.get(request_id, 0)
        draft.blocks_left -= num_new_blocks
        draft.chunks.append(PlannedChunk(request_id, 1, num_new_blocks, True))
    draft.tokens_left -= len(served)
    for sequence in decodes[len(served) :]:
        draft.skip(sequence.request_id, SkipReason.OVER_TOKEN_BUDGET)


def _give_prompts(live: _Live, draft: Draft, snapshot: Snapshot) -> None:
    """Unfinished prompts go on within the budget."""
    shortest_served = sys.maxsize
    for sequence in ordering.prompt_order(live.prompts, snapshot.limits.max_prompt_skips):
        num_pending_tokens = sequence.num_pending_tokens
        if draft.tokens_left < 1:
            is_behind = shortest_served < num_pending_tokens
            draft.skip(
                sequence.request_id,
                SkipReason.BEHIND_SHORTER_PROMPTS if is_behind else SkipReason.OVER_TOKEN_BUDGET,
            )
            continue
        num_tokens = draft.chunk_for(num_pending_tokens)
        if num_tokens is None:
            draft.skip(sequence.request_id, SkipReason.INTERLEAVE_BOUND)
            continue
        shortest_served = min(shortest_served, num_pending_tokens)
        num_held = blocks_for(sequence.num_computed_tokens + num_tokens, snapshot.block_size)
        num_lacking = max(0, num_held - sequence.num_charged_blocks)
        num_new_blocks = min(num_lacking, live.lacking.get(sequence.request_id, 0))
        draft.take(num_tokens, num_pending_tokens, num_new_blocks)
        draft.chunks.append(PlannedChunk(sequence.request_id, num_tokens, num_new_blocks, False))


def _admit_nobody(snapshot: Snapshot, draft: Draft) -> None:
    for request in snapshot.waiting:
        is_unfit = admission.is_unfit(request, snapshot)
        draft.skip(
            request.request_id,
            SkipReason.UNFIT_HERE if is_unfit else SkipReason.ADMISSION_PAUSED,
        )


def _admit(snapshot: Snapshot, live: _Live, draft: Draft) -> None:
    """Claim waiting requests in rank order while tokens, places and blocks last."""
    door = _Door(snapshot, live, draft)
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

    def __init__(self, snapshot: Snapshot, live: _Live, draft: Draft) -> None:
        self._snapshot = snapshot
        self._live = live
        self._draft = draft
        self._num_sequences = len(live)
        self._watermark = admission.watermark_blocks(snapshot)
        self._growth: int | None = None  # counted when first wanted
        self._blocked: list[str] = []
        self._passes_left = sys.maxsize

    def reason_to_wait(self, request: WaitingRequest) -> SkipReason | None:
        if admission.is_unfit(request, self._snapshot):
            return SkipReason.UNFIT_HERE
        if self._num_sequences >= self._snapshot.limits.max_sequences:
            return SkipReason.SEQUENCE_CAP
        if self._draft.tokens_left < 1:
            return SkipReason.OVER_TOKEN_BUDGET
        num_blocks = admission.admission_blocks(request, self._snapshot.block_size)
        if num_blocks + self._reserve(request, num_blocks) > self._draft.blocks_left:
            return SkipReason.NO_FREE_BLOCKS
        if self._draft.chunk_for(request.num_tokens) is None:
            return SkipReason.INTERLEAVE_BOUND
        return SkipReason.BEHIND_BLOCKED_HEAD if self._passes_left < 1 else None

    def let_in(self, request: WaitingRequest) -> None:
        num_tokens = self._draft.chunk_for(request.num_tokens)
        assert num_tokens, f"{request.request_id} is let in without tokens"
        num_blocks = admission.admission_blocks(request, self._snapshot.block_size)
        if self._growth is not None:
            self._growth += admission.will_grow(request, num_blocks, self._snapshot.block_size)
        self._draft.take(num_tokens, request.num_tokens, num_blocks)
        self._draft.claims.append(PlannedClaim(request.request_id, num_tokens, num_blocks))
        self._draft.bypassed += self._blocked
        self._num_sequences += 1
        self._passes_left -= 1

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
        live = (*self._live.decodes, *self._live.prompts, *self._live.idle)
        let_in = {claim.request_id for claim in self._draft.claims}
        return sum(admission.will_grow(s, s.num_charged_blocks, block_size) for s in live) + sum(
            admission.will_grow(r, admission.admission_blocks(r, block_size), block_size)
            for r in self._snapshot.waiting
            if r.request_id in let_in
        )
