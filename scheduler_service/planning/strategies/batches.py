"""Batches that nobody joins: how one is begun once its members are known, and run to its end.

Shared by static and dynamic batching; who the members are is their own affair.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scheduler_service.planning import admission, ordering
from scheduler_service.planning.snapshot import (
    Decision,
    PlannedClaim,
    SkipReason,
    Snapshot,
    WaitingRequest,
)
from scheduler_service.planning.strategies.draft import Draft
from scheduler_service.planning.strategies.running import serve_running


@dataclass(frozen=True, slots=True, kw_only=True)
class Formation:
    """Who makes up the next batch. Nobody: it is still forming."""

    members: Sequence[WaitingRequest] = ()
    wait_ms: int | None = None  # until it may be formed with what is there


Form = Callable[[Sequence[WaitingRequest]], Formation]


def plan_batch(
    snapshot: Snapshot,
    form: Form,
    rejects: Sequence[WaitingRequest] = (),
    *,
    may_begin: bool = True,
) -> Decision:
    """Run what runs; when all of it has ended, begin the next batch.

    Members have all their blocks promised, so that a batch never preempts its own; what does not
    fit beside those before it stays behind.
    """
    draft = Draft(snapshot)
    live, _ = serve_running(snapshot, draft)
    waiting = _pass_over(snapshot, draft, rejects)
    wait_ms = None
    if len(live):
        _skip(draft, waiting, SkipReason.BATCH_RUNNING)
    elif not may_begin:
        _skip(draft, waiting, SkipReason.ORDER_PRESERVED)
    elif snapshot.num_returning_blocks or any(s.is_ending for s in snapshot.running):
        _skip(draft, waiting, SkipReason.BLOCKS_RETURNING)
    else:
        formation = _isolate(waiting) or form([r for r in waiting if not r.is_suspect])
        wait_ms = formation.wait_ms
        _begin(snapshot, draft, waiting, formation.members)
    return draft.decision(
        forms_batch=bool(draft.claims),
        claim_at_least=max(1, len(draft.claims)),
        rejects=tuple(request.request_id for request in rejects),
        wait_ms=wait_ms,
    )


def _isolate(waiting: Sequence[WaitingRequest]) -> Formation | None:
    """One that may crash its worker is a batch of its own, when it is first."""
    return Formation(members=waiting[:1]) if waiting and waiting[0].is_suspect else None


def _pass_over(
    snapshot: Snapshot, draft: Draft, rejects: Sequence[WaitingRequest]
) -> list[WaitingRequest]:
    """Those that can be members, in rank order."""
    rejected = {request.request_id for request in rejects}
    waiting = []
    for request in ordering.rank_order(snapshot.waiting):
        if request.request_id in rejected:
            draft.skip(request.request_id, SkipReason.QUEUE_TIMEOUT)
        elif admission.is_unfit(request, snapshot):
            draft.skip(request.request_id, SkipReason.UNFIT_HERE)
        else:
            waiting.append(request)
    return waiting


def _skip(draft: Draft, waiting: Sequence[WaitingRequest], reason: SkipReason) -> None:
    for request in waiting:
        draft.skip(request.request_id, reason)


def _begin(
    snapshot: Snapshot,
    draft: Draft,
    waiting: Sequence[WaitingRequest],
    members: Sequence[WaitingRequest],
) -> None:
    blocks_left = snapshot.num_available_blocks
    chosen = {request.request_id for request in members}
    for request in members[: snapshot.limits.max_sequences]:
        blocks_left -= admission.most_blocks(request, snapshot.block_size)
        if blocks_left < 0:
            break
        _let_in(draft, request, snapshot.block_size)
    claimed = {claim.request_id for claim in draft.claims}
    other = SkipReason.BEHIND_BATCH if members else SkipReason.BATCH_FORMING
    for request in waiting:
        if request.request_id not in claimed:
            is_left = request.request_id in chosen
            draft.skip(request.request_id, SkipReason.NO_FREE_BLOCKS if is_left else other)


def _let_in(draft: Draft, request: WaitingRequest, block_size: int) -> None:
    """All come in at once, also those whose first tokens this step cannot hold."""
    num_blocks = admission.admission_blocks(request, block_size)
    num_cached = draft.expected_cached_tokens(request)
    num_new = request.num_tokens - num_cached
    num_tokens = (draft.chunk_for(num_new) or 0) if draft.tokens_left > 0 else 0
    if num_tokens:
        draft.take(num_tokens, num_new, num_blocks)
    draft.claims.append(PlannedClaim(request.request_id, num_tokens, num_blocks, num_cached))
    draft.note_prefixes(request, num_cached + num_tokens)
