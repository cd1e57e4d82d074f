"""One driver's view of its worker: live sequences, plans in flight, the queue window.

Pure bookkeeping: plans and results go in, snapshots, plans and rows for the store come out.
Predictions of plans in flight are made anew from each result, so a wrong guess (a prefix hit, an
early stop) corrects itself. Knows nothing of Redis, grpc, time or text.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from scheduler_service.planning.live import (
    RELEASE_REASON,
    Admissible,
    Ending,
    LiveSequence,
)
from scheduler_service.planning.outcome import End, TextStop, TokenRow, end_of
from scheduler_service.planning.snapshot import (
    Decision,
    Limits,
    Snapshot,
    WaitingRequest,
)
from shared.blocks import blocks_for
from shared.types import (
    Admission,
    BatchPlan,
    BlockCounts,
    Chunk,
    FinishReason,
    Refusal,
    RefusalReason,
    Release,
    Resident,
    StepResult,
    StepRow,
)

MAX_PREEMPTED_NOTES = 4096  # preempted requests that others took stay noted no longer than this

# Finds whether newly appended ids complete a stop string: (request id, all output ids, how many are new).
TextStopFinder = Callable[[str, Sequence[int], int], TextStop | None]


@dataclass(slots=True, kw_only=True)
class PlannedStep:
    """A plan in flight: what it does to whom, and how many blocks it may take."""

    step_id: int
    chunks: tuple[Chunk, ...]
    num_charged_blocks: int


@dataclass(slots=True, kw_only=True)
class StepOutcome:
    """What a result means: rows for the logs, requests that go back to the queue, work done."""

    rows: list[TokenRow] = field(default_factory=list)
    requeues: list[str] = field(default_factory=list)  # after the rows have been committed
    num_prompt_tokens: int = 0  # computed for the first time
    num_recomputed_tokens: int = 0
    num_cached_tokens: int = 0
    num_sampled_tokens: int = 0


class DriverView:
    def __init__(self, *, limits: Limits, block_size: int, find_text_stop: TextStopFinder) -> None:
        self.limits = limits
        self.block_size = block_size
        self.window: tuple[WaitingRequest, ...] = ()
        self.num_waiting = 0
        self._find_text_stop = find_text_stop
        self._by_handle: dict[int, LiveSequence] = {}
        self._by_request: dict[str, LiveSequence] = {}
        self._stray_handles: list[int] = []  # resident, but no longer the store's: to be released
        self._bypasses: dict[str, int] = {}
        self._preempted_at: dict[str, int] = {}  # tokens computed before; in the window or soon
        self._in_flight: deque[PlannedStep] = deque()
        self._blocks = BlockCounts(total=0, free=0, cached=0, held=0)
        self._next_handle = 1
        self._next_rank = 0
        self.next_step_id = 1

    # -- what is there ---------------------------------------------------------------------------

    @property
    def num_in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def num_live(self) -> int:
        return len(self._by_handle)

    @property
    def blocks(self) -> BlockCounts:
        return self._blocks

    @property
    def has_releases(self) -> bool:
        return bool(self._stray_handles) or any(
            s.ending is not None and not s.release_step for s in self._by_handle.values()
        )

    def live(self, request_id: str) -> LiveSequence | None:
        return self._by_request.get(request_id)

    def live_by_handle(self, handle: int) -> LiveSequence | None:
        return self._by_handle.get(handle)

    def snapshot(self) -> Snapshot:
        charged = sum(step.num_charged_blocks for step in self._in_flight)
        waiting = tuple(w for w in self.window if w.request_id not in self._by_request)
        return Snapshot(
            running=tuple(s.as_running() for s in self._by_handle.values()),
            waiting=waiting,
            num_waiting_beyond=max(0, self.num_waiting - len(self.window)),
            limits=self.limits,
            block_size=self.block_size,
            num_total_blocks=self._blocks.total,
            num_available_blocks=max(0, self._blocks.available - charged),
        )

    def see_window(self, waiting: Iterable[WaitingRequest], num_waiting: int) -> None:
        """The store's newest answer. Bypass counts are this driver's own."""
        self.window = tuple(waiting)
        self.num_waiting = num_waiting
        present = {w.request_id for w in self.window}
        self._bypasses = {k: v for k, v in self._bypasses.items() if k in present}
        while len(self._preempted_at) > MAX_PREEMPTED_NOTES:
            del self._preempted_at[next(iter(self._preempted_at))]

    def num_bypasses(self, request_id: str) -> int:
        return self._bypasses.get(request_id, 0)

    # -- taking over -------------------------------------------------------------------------------

    def attach(self, resident: Resident, running: Sequence[Admissible]) -> StepOutcome:
        """Keep what is resident and current, release the rest, send the missing back to the queue."""
        outcome = StepOutcome()
        records = {record.request_id: record for record in running}
        self.next_step_id = resident.last_step_id + 1
        self._blocks = resident.blocks
        for sequence in resident.sequences:
            self._next_handle = max(self._next_handle, sequence.handle + 1)
            record = records.get(sequence.request_id)
            is_current = record is not None and record.assignment == sequence.assignment
            if record is None or not is_current or len(sequence.output_ids) < len(record.log):
                self._stray_handles.append(sequence.handle)
                continue
            del records[sequence.request_id]
            live = self._add(record, sequence.handle, list(sequence.output_ids))
            live.is_admitted = True
            live.num_computed_tokens = sequence.num_computed_tokens
            live.num_committed = len(record.log)
            live.num_admitted_tokens = max(live.num_computed_tokens, live.num_admitted_tokens)
            live.restart_prediction()
            live.recharge(self.block_size)
            self._resume(live, sequence.finish, outcome)
        outcome.requeues.extend(records)
        return outcome

    def _resume(
        self, live: LiveSequence, finish: FinishReason | None, outcome: StepOutcome
    ) -> None:
        """Rows that the driver before did not commit."""
        new_ids = tuple(live.output_ids[live.num_committed :])
        row = StepRow(
            handle=live.handle,
            num_computed_tokens=0,
            sampled_ids=new_ids,
            first_index=live.num_committed,
            finish=finish,
        )
        if new_ids or finish is not None:
            self._append(live, row, outcome)

    def _add(self, request: Admissible, handle: int, output_ids: list[int]) -> LiveSequence:
        live = LiveSequence(
            request=request,
            handle=handle,
            rank=self._next_rank,
            output_ids=output_ids,
            num_committed=len(output_ids),
            num_admitted_tokens=len(request.prompt_ids) + len(output_ids),
            num_recompute_tokens=max(
                len(request.prompt_ids) + len(output_ids) - 1 if output_ids else 0,
                self._preempted_at.pop(request.request_id, 0),
            ),
        )
        live.restart_prediction()
        self._next_rank += 1
        self._by_handle[handle] = live
        self._by_request[request.request_id] = live
        return live

    # -- planning ----------------------------------------------------------------------------------

    def make_plan(
        self, decision: Decision, claimed: Sequence[Admissible], *, epoch: int, durable_step: int
    ) -> BatchPlan:
        """Turn a decision into the next plan; claims that were not granted fall away."""
        for request_id in decision.preemptions:
            self.end(request_id, Ending.PREEMPTED)
        releases = self._take_releases()
        available_before = self._charged_total()
        chunks = [self._chunk(c.request_id, c.num_tokens) for c in decision.chunks]
        first_tokens = {c.request_id: c.num_tokens for c in decision.claims}
        admissions: list[Admission] = []
        for request in claimed:
            admission = self._admit(request)
            admissions.append(admission)
            chunks.append(self._chunk(request.request_id, first_tokens.get(request.request_id, 0)))
        self._note_skips({c.request_id for c in decision.chunks})
        if claimed:
            for request_id in decision.bypassed:
                self._bypasses[request_id] = self._bypasses.get(request_id, 0) + 1
        step = PlannedStep(
            step_id=self.next_step_id,
            chunks=tuple(c for c in chunks if c is not None),
            num_charged_blocks=self._charged_total() - available_before,
        )
        self._in_flight.append(step)
        self.next_step_id += 1
        return BatchPlan(
            epoch=epoch,
            step_id=step.step_id,
            durable_step=durable_step,
            releases=releases,
            admissions=tuple(admissions),
            chunks=step.chunks,
        )

    def _charged_total(self) -> int:
        return sum(s.num_charged_blocks for s in self._by_handle.values())

    def _take_releases(self) -> tuple[Release, ...]:
        releases = [
            Release(handle=handle, reason=RELEASE_REASON[Ending.STALE])
            for handle in self._stray_handles
        ]
        self._stray_handles.clear()
        for sequence in self._by_handle.values():
            if sequence.ending is not None and not sequence.release_step:
                sequence.release_step = self.next_step_id
                reason = RELEASE_REASON[sequence.ending]
                releases.append(Release(handle=sequence.handle, reason=reason))
        return tuple(releases)

    def _chunk(self, request_id: str, num_tokens: int) -> Chunk | None:
        sequence = self._by_request.get(request_id)
        if sequence is None or sequence.ending is not None or num_tokens < 1:
            return None
        if not sequence.predict(num_tokens, self.block_size):
            return None
        sequence.num_skips = 0
        return Chunk(sequence.handle, num_tokens)

    def _admit(self, request: Admissible) -> Admission:
        live = self._add(request, self._next_handle, list(request.log))
        self._next_handle += 1
        live.num_charged_blocks = blocks_for(live.num_admitted_tokens, self.block_size)
        return Admission(
            request_id=request.request_id,
            assignment=request.assignment,
            handle=live.handle,
            token_ids=request.prompt_ids + request.log,
            num_prompt_tokens=len(request.prompt_ids),
            sampling=request.sampling,
            stop=request.stop,
            cache_salt=request.cache_salt,
        )

    def _note_skips(self, served: set[str]) -> None:
        for sequence in self._by_handle.values():
            if sequence.ending is None and sequence.request_id not in served:
                sequence.num_skips += 1

    # -- results -----------------------------------------------------------------------------------

    def end(self, request_id: str, ending: Ending) -> None:
        """Nothing more for this sequence; the next plan releases it."""
        sequence = self._by_request.get(request_id)
        if sequence is not None and sequence.ending is None:
            sequence.ending = ending

    def apply_result(self, result: StepResult) -> StepOutcome:
        """Results come in the order of their plans."""
        step = self._in_flight.popleft()
        assert step.step_id == result.step_id, f"step {result.step_id}, expected {step.step_id}"
        self._blocks = result.blocks
        outcome = StepOutcome()
        for row in result.rows:
            sequence = self._by_handle.get(row.handle)
            if sequence is not None:
                self._apply_row(sequence, row, outcome)
        for refusal in result.refusals:
            self._apply_refusal(refusal, outcome)
        self._drop_released(result.step_id, outcome)
        self._predict_in_flight()
        return outcome

    def _apply_row(self, live: LiveSequence, row: StepRow, outcome: StepOutcome) -> None:
        if not live.is_admitted:
            live.is_admitted = True
            live.num_cached_tokens = live.num_computed_tokens = row.num_cached_tokens
            outcome.num_cached_tokens += row.num_cached_tokens
        self._count_work(live, row, outcome)
        live.num_computed_tokens += row.num_computed_tokens
        if live.ending is None or live.ending is Ending.PREEMPTED:
            fresh = row.sampled_ids[max(0, len(live.output_ids) - row.first_index) :]
            live.output_ids.extend(fresh)
            if fresh or row.finish is not None:
                self._append(live, row, outcome)

    def _count_work(self, live: LiveSequence, row: StepRow, outcome: StepOutcome) -> None:
        start = live.num_computed_tokens
        end = start + row.num_computed_tokens
        recomputed = max(0, min(end, live.num_recompute_tokens) - start)
        prompt = max(0, min(end, live.num_prompt_tokens) - start)
        outcome.num_recomputed_tokens += recomputed
        outcome.num_prompt_tokens += max(0, prompt - recomputed)
        outcome.num_sampled_tokens += len(row.sampled_ids)

    def _append(self, live: LiveSequence, row: StepRow, outcome: StepOutcome) -> None:
        """Hand what is new to the committer, cut where a stop string ends it."""
        is_first = live.num_committed == 0
        num_new = len(live.output_ids) - live.num_committed
        text_stop = self._find_text_stop(live.request_id, live.output_ids, num_new)
        if text_stop is not None:
            del live.output_ids[text_stop.num_tokens :]
        end = end_of(row, live.output_ids, live.request.include_stop, text_stop)
        if end is not None:
            live.ending = Ending.FINISHED
        outcome.rows.append(live.take_row(end, live.num_cached_tokens if is_first else -1))

    def _apply_refusal(self, refusal: Refusal, outcome: StepOutcome) -> None:
        live = self._by_handle.get(refusal.handle)
        if live is None or live.ending in (Ending.FINISHED, Ending.CANCELLED, Ending.STALE):
            return
        if refusal.reason in (RefusalReason.FAILED, RefusalReason.BAD_ADMISSION):
            self._fail(live, f"{refusal.reason}: {refusal.detail}", outcome)
        elif not live.is_admitted:
            # The worker has nothing of it: back to the queue without a release.
            self._forget(live)
            outcome.requeues.append(live.request_id)
        else:
            live.recharge(self.block_size)

    def _fail(self, live: LiveSequence, error: str, outcome: StepOutcome) -> None:
        live.ending = Ending.FAILED
        outcome.rows.append(live.take_row(End(reason=FinishReason.ERROR, error=error)))

    def cancel(self, request_id: str, reason: FinishReason) -> TokenRow | None:
        """The store says: cancelled or expired. The row that ends it, if it still runs here."""
        live = self._by_request.get(request_id)
        if live is None or live.ending not in (None, Ending.PREEMPTED):
            return None
        live.ending = Ending.CANCELLED
        return live.take_row(End(reason=reason))

    def _drop_released(self, step_id: int, outcome: StepOutcome) -> None:
        """Sequences that this step released have left the worker."""
        gone = [s for s in self._by_handle.values() if 0 < s.release_step <= step_id]
        for live in gone:
            self._forget(live)
            if live.ending is Ending.PREEMPTED:
                self._preempted_at[live.request_id] = live.num_computed_tokens
                outcome.requeues.append(live.request_id)

    def _forget(self, live: LiveSequence) -> None:
        del self._by_handle[live.handle]
        self._by_request.pop(live.request_id, None)

    def _predict_in_flight(self) -> None:
        for sequence in self._by_handle.values():
            sequence.restart_prediction()
        for step in self._in_flight:
            for chunk in step.chunks:
                sequence_or_none = self._by_handle.get(chunk.handle)
                if sequence_or_none is not None:
                    sequence_or_none.predict(chunk.max_num_tokens, self.block_size)
