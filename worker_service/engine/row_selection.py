"""Which chunks of a plan run, and how long they are. Knows nothing of tensors or models."""

from shared.types import BatchPlan, Refusal, RefusalReason
from worker_service.engine.row import Row
from worker_service.engine.sequence_table import SequenceTable


def select_rows(
    plan: BatchPlan, sequences: SequenceTable, max_step_tokens: int, refusals: list[Refusal]
) -> list[Row]:
    """The chunks that can run, clamped to what is pending; each has its blocks.

    A chunk that begins a sequence starts behind what the rows before it compute of its beginning.
    """
    refused = {refusal.handle for refusal in refusals}  # one refusal a handle says enough
    seen: set[int] = set()
    rows: list[Row] = []
    budget = max_step_tokens or sum(chunk.max_num_tokens for chunk in plan.chunks)
    sequences.forget_promises()
    for chunk in plan.chunks:
        if chunk.handle in refused:
            continue
        sequence = sequences.get(chunk.handle)
        if sequence is None or chunk.handle in seen:
            refusals.append(_refuse_handle(chunk.handle, is_known=sequence is not None))
            continue
        seen.add(chunk.handle)
        if min(chunk.max_num_tokens, budget) < 1 or sequence.num_pending_tokens < 1:
            continue
        sequences.join(sequence)
        num_tokens = min(chunk.max_num_tokens, sequence.num_pending_tokens, budget)
        if refusal := sequences.grow(sequence, num_tokens):
            sequences.give_back(sequence)
            refusals.append(refusal)
            continue
        budget -= num_tokens
        rows.append(Row(sequence, num_tokens))
        sequences.promise(sequence, num_tokens)
    return rows


def _refuse_handle(handle: int, *, is_known: bool) -> Refusal:
    if is_known:
        return Refusal(
            handle=handle, reason=RefusalReason.DUPLICATE_HANDLE, detail="two chunks in one plan"
        )
    return Refusal(handle=handle, reason=RefusalReason.UNKNOWN_HANDLE)
