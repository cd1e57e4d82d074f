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
    Skipped,
    SkipReason,
    Snapshot,
    WaitingRequest,
)
from shared.blocks import blocks_for


@dataclass(frozen=True, slots=True)
class ContinuousStrategy:
    def plan(self, snapshot: Snapshot) -> Decision:
        draft = _Draft(snapshot)
        live = _survey(snapshot, draft)
        is_short = _make_room(live, draft)
        _give_decodes(live, draft)
        _give_prompts(live, draft)
        if is_short:
            _admit_nobody(snapshot, draft)
        else:
            _admit(snapshot, live, draft)
        if snapshot.num_waiting_beyond:
            draft.skip("", SkipReason.BEYOND_WINDOW, snapshot.num_waiting_beyond)
        return draft.decision()


class _Draft:
    """A decision in the making: what has been given, and what is left to give."""

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


def _survey(snapshot: Snapshot, draft: _Draft) -> _Live:
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
            draft.skip(sequence.request_id, SkipReason.AWAITS_RESULT)
            continue
        (live.decodes if num_pending_tokens == 1 else live.prompts).append(sequence)
        num_lacking = -(-num_tokens // block_size) - sequence.num_charged_blocks
        if num_lacking > 0:
            live.lacking[sequence.request_id] = num_lacking
    return live


def _make_room(live: _Live, draft: _Draft) -> bool:
    """True if blocks do not cover what the sequences lack: some give way, some wait.

    Blocks given up now can be used only when the worker has reported them, so this step
    gives out what there is, to those first who would give way last.
    """
    if not live.lacking or sum(live.lacking.values()) <= draft.blocks_left:
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
    gone = _preempt(candidates, live, draft)
    gone |= _hold_back((s for s in reversed(candidates) if s.request_id not in gone), live, draft)
    live.decodes = [s for s in live.decodes if s.request_id not in gone]
    live.prompts = [s for s in live.prompts if s.request_id not in gone]
    return True


def _preempt(candidates: list[RunningSequence], live: _Live, draft: _Draft) -> set[str]:
    """Choose victims until what comes back will cover what the others lack.

    A victim makes room for others: one that alone lacks blocks waits instead. The last candidate
    stays, and can go on once all the blocks are back: admission saw that it fits alone.
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


def _hold_back(sequences: Iterable[RunningSequence], live: _Live, draft: _Draft) -> set[str]:
    """Those, in this order, whose lack the blocks that are left do not cover."""
    blocks_left = draft.blocks_left
    held: set[str] = set()
    for sequence in sequences:
        num_lacking = live.lacking.get(sequence.request_id, 0)
        if num_lacking <= blocks_left:
            blocks_left -= num_lacking
            continue
        held.add(sequence.request_id)
        draft.skip(sequence.request_id, SkipReason.NO_FREE_BLOCKS)
    return held


def _give_decodes(live: _Live, draft: _Draft) -> None:
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


def _give_prompts(live: _Live, draft: _Draft) -> None:
    """Unfinished prompts go on within the budget."""
    shortest_served = sys.maxsize
    for sequence in ordering.prompt_order(live.prompts, draft.max_prompt_skips):
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
        num_new_blocks = live.lacking.get(sequence.request_id, 0)
        draft.take(num_tokens, num_pending_tokens, num_new_blocks)
        draft.chunks.append(PlannedChunk(sequence.request_id, num_tokens, num_new_blocks, False))
