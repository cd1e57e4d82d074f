"""What the live sequences get in a step, the same in every strategy.

Decodes first, then unfinished prompts; and if the blocks run short, somebody gives way. Knows nothing
of waiting requests.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from scheduler_service.planning import ordering
from scheduler_service.planning.snapshot import (
    PlannedChunk,
    RunningSequence,
    SkipReason,
    Snapshot,
)
from scheduler_service.planning.strategies.draft import Draft
from shared.blocks import blocks_for


def serve_running(snapshot: Snapshot, draft: Draft) -> tuple["Live", bool]:
    """Give the live sequences their chunks. True: blocks ran short, so nobody may come in."""
    live = survey(snapshot)
    is_short = make_room(live, draft)
    for sequence in live.idle:
        draft.skip(sequence.request_id, SkipReason.AWAITS_RESULT)
    give_decodes(live, draft)
    give_prompts(live, draft, snapshot)
    return live, is_short


@dataclass(slots=True)
class Live:
    """The sequences that are not ending, by what this step can do for them."""

    decodes: list[RunningSequence] = field(default_factory=list)  # one pending token
    prompts: list[RunningSequence] = field(default_factory=list)  # more than one
    idle: list[RunningSequence] = field(default_factory=list)  # nothing left to give
    lacking: dict[str, int] = field(default_factory=dict)  # blocks that pending tokens want
    num_returning_blocks: int = 0  # of those that end by themselves, and of those ending

    def __len__(self) -> int:
        return len(self.decodes) + len(self.prompts) + len(self.idle)

    def sequences(self) -> Iterator[RunningSequence]:
        return chain(self.decodes, self.prompts, self.idle)


def survey(snapshot: Snapshot) -> Live:
    """Sort the sequences by what they can get, and note the blocks that they lack."""
    live = Live(num_returning_blocks=snapshot.num_returning_blocks)
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


def make_room(live: Live, draft: Draft) -> bool:
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


def _preempt(candidates: list[RunningSequence], live: Live, draft: Draft) -> set[str]:
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


def _hold_back(sequences: Iterable[RunningSequence], live: Live, draft: Draft) -> set[str]:
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


def give_decodes(live: Live, draft: Draft) -> None:
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
    draft.num_decodes = len(served)
    for sequence in decodes[len(served) :]:
        draft.skip(sequence.request_id, SkipReason.OVER_TOKEN_BUDGET)


def give_prompts(live: Live, draft: Draft, snapshot: Snapshot) -> None:
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
            draft.skip(sequence.request_id, draft.cut_reason)
            continue
        shortest_served = min(shortest_served, num_pending_tokens)
        num_held = blocks_for(sequence.num_computed_tokens + num_tokens, snapshot.block_size)
        num_lacking = max(0, num_held - sequence.num_charged_blocks)
        num_new_blocks = min(num_lacking, live.lacking.get(sequence.request_id, 0))
        draft.take(num_tokens, num_pending_tokens, num_new_blocks)
        draft.chunks.append(PlannedChunk(sequence.request_id, num_tokens, num_new_blocks, False))
