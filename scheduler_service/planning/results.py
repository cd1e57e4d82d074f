"""What a worker's rows mean for a live sequence, and for its log.

Knows nothing of plans in flight, Redis or time; text is asked of an injected finder.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from scheduler_service.planning.live import Admissible, Ending, LiveSequence
from scheduler_service.planning.live_table import LiveTable
from scheduler_service.planning.outcome import End, TextStop, TokenRow, end_of
from shared.types import FinishReason, Refusal, RefusalReason, ResidentSequence, StepRow

# Whether new ids complete a stop string: (request id, all output ids, how many are new).
TextStopFinder = Callable[[str, Sequence[int], int], TextStop | None]


@dataclass(slots=True, kw_only=True)
class StepOutcome:
    """What a result means: rows for the logs, requests that go back to the queue, work done."""

    rows: list[TokenRow] = field(default_factory=list)
    requeues: list[str] = field(default_factory=list)  # after the rows have been committed
    num_prompt_tokens: int = 0  # computed for the first time
    num_recomputed_tokens: int = 0
    num_cached_tokens: int = 0
    num_sampled_tokens: int = 0
    work: list[tuple[int, int, bool]] = field(
        default_factory=list
    )  # as StepShape.of_chunks takes it
    # Work that was of no use, by cause:
    num_held_sequence_steps: int = 0  # ended members that kept their place in a batch, this step
    num_tokens_after_cancel: int = 0
    num_expired_prompt_tokens: int = 0  # prefill of requests that have now expired
    num_replayed_tokens: int = 0  # computed again because a worker died


def apply_row(
    live: LiveSequence, row: StepRow, outcome: StepOutcome, find_text_stop: TextStopFinder
) -> None:
    if not live.is_admitted:
        live.is_admitted = True
        live.num_cached_tokens = live.num_computed_tokens = row.num_cached_tokens
        outcome.num_cached_tokens += row.num_cached_tokens
    _count_work(live, row, outcome)
    live.num_computed_tokens += row.num_computed_tokens
    if live.ending is None or live.ending is Ending.PREEMPTED:
        fresh = row.sampled_ids[max(0, len(live.output_ids) - row.first_index) :]
        live.output_ids.extend(fresh)
        if fresh or row.finish is not None:
            _append(live, row, outcome, find_text_stop)


def apply_refusal(table: LiveTable, refusal: Refusal, outcome: StepOutcome) -> None:
    live = table.by_handle(refusal.handle)
    if live is None or live.ending in (Ending.FINISHED, Ending.CANCELLED, Ending.STALE):
        return
    if refusal.reason in (RefusalReason.FAILED, RefusalReason.BAD_ADMISSION):
        live.ending = Ending.FAILED
        error = f"{refusal.reason}: {refusal.detail}"
        outcome.rows.append(live.take_row(End(reason=FinishReason.ERROR, error=error)))
    elif not live.is_admitted:
        # The worker has nothing of it: back to the queue without a release.
        table.forget(live)
        outcome.requeues.append(live.request_id)


def _count_work(live: LiveSequence, row: StepRow, outcome: StepOutcome) -> None:
    start = live.num_computed_tokens
    outcome.work.append((start, row.num_computed_tokens, bool(row.sampled_ids)))
    end = start + row.num_computed_tokens
    recomputed = max(0, min(end, live.num_recompute_tokens) - start)
    prompt = max(0, min(end, live.num_prompt_tokens) - start)
    if live.is_replay:
        outcome.num_replayed_tokens += recomputed
    else:
        outcome.num_recomputed_tokens += recomputed
    if live.ending is Ending.CANCELLED:
        outcome.num_tokens_after_cancel += row.num_computed_tokens
    outcome.num_prompt_tokens += max(0, prompt - recomputed)
    outcome.num_sampled_tokens += len(row.sampled_ids)


def _append(
    live: LiveSequence, row: StepRow, outcome: StepOutcome, find_text_stop: TextStopFinder
) -> None:
    """Hand what is new to the committer, cut where a stop string ends it."""
    is_first = live.num_committed == 0
    num_new = len(live.output_ids) - live.num_committed
    text_stop = find_text_stop(live.request_id, live.output_ids, num_new)
    if text_stop is not None:
        del live.output_ids[text_stop.num_tokens :]
    end = end_of(row, live.output_ids, live.request.include_stop, text_stop)
    if end is not None:
        live.ending = Ending.FINISHED
    outcome.rows.append(live.take_row(end, live.num_cached_tokens if is_first else -1))


def end_of_log(
    request: Admissible, output_ids: Sequence[int], find_text_stop: TextStopFinder
) -> End | None:
    """The end that a log has in it already: a store that lost writes may have all the tokens of a
    request, and not that they were the last. There is nothing to compute for it."""
    if not output_ids:
        return None
    stop, finish = request.stop, None
    if output_ids[-1] in stop.stop_token_ids and len(output_ids) > stop.min_tokens:
        finish = FinishReason.STOP_TOKEN
    elif len(output_ids) >= stop.max_tokens:
        finish = FinishReason.LENGTH
    text_stop = find_text_stop(request.request_id, output_ids, len(output_ids))
    row = StepRow(handle=0, num_computed_tokens=0, finish=finish)
    return end_of(row, output_ids, request.include_stop, text_stop)


def ended_row(request: Admissible, find_text_stop: TextStopFinder) -> TokenRow | None:
    """The row that ends a claimed request whose log is complete; None: it has to run."""
    end = end_of_log(request, request.log, find_text_stop)
    if end is None:
        return None
    return TokenRow(
        request_id=request.request_id,
        assignment=request.assignment,
        index=len(request.log),
        token_ids=(),
        end=end,
        is_held=request.is_held,
    )


def continues(sequence: ResidentSequence, record: Admissible) -> bool:
    """Whether what the worker holds is what the store says runs there."""
    return record.assignment == sequence.assignment and len(sequence.output_ids) >= len(record.log)


def resume(
    live: LiveSequence,
    sequence: ResidentSequence,
    outcome: StepOutcome,
    find_text_stop: TextStopFinder,
) -> None:
    """A sequence of the driver before: rows that it did not commit are committed now."""
    live.is_admitted = True
    live.num_computed_tokens = sequence.num_computed_tokens
    live.num_committed = len(live.request.log)
    live.num_known_blocks = sequence.num_held_blocks
    if live.num_committed < len(live.output_ids) or sequence.finish is not None:
        row = StepRow(handle=live.handle, num_computed_tokens=0, finish=sequence.finish)
        _append(live, row, outcome, find_text_stop)
    if live.ending is None:
        end = end_of_log(live.request, live.output_ids, find_text_stop)
        if end is not None:
            live.ending = Ending.FINISHED
            outcome.rows.append(live.take_row(end))
