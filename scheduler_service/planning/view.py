"""One driver's view of its worker: live sequences, plans in flight, the queue window.

Pure bookkeeping: plans and results go in, snapshots, plans and rows for the store come out.
Predictions of plans in flight are made anew from each result, so a wrong guess (a prefix hit, an
early stop) corrects itself. Knows nothing of Redis, grpc, time or text.
"""

from collections.abc import Callable, Sequence

from scheduler_service.planning.batch import RunningBatch
from scheduler_service.planning.in_flight import PlansInFlight
from scheduler_service.planning.live import (
    Admissible,
    Ending,
    LiveSequence,
)
from scheduler_service.planning.live_table import LiveTable
from scheduler_service.planning.outcome import End, TokenRow
from scheduler_service.planning.prefix_view import PrefixView
from scheduler_service.planning.results import (
    StepOutcome,
    TextStopFinder,
    apply_refusal,
    apply_row,
    continues,
    resume,
)
from scheduler_service.planning.snapshot import (
    NEVER_MS,
    Decision,
    Limits,
    SkipReason,
    Snapshot,
)
from scheduler_service.planning.strays import Strays
from scheduler_service.planning.waiting import WaitingView
from shared.blocks import blocks_for
from shared.cost_model import StepShape
from shared.types import (
    Admission,
    BatchPlan,
    BlockCounts,
    Chunk,
    FinishReason,
    Resident,
    StepResult,
    TokenIds,
)

PlannedWork = tuple[int, int, bool]  # of a chunk: first position, tokens, whether it samples


class DriverView:
    def __init__(
        self,
        *,
        limits: Limits,
        block_size: int,
        find_text_stop: TextStopFinder,
        max_model_tokens: int = 0,
    ) -> None:
        self.limits = limits
        self._batch: RunningBatch | None = None
        self._last_admission_ms: int | None = None
        self._num_expired_prompt_tokens = 0  # since the last result
        self._max_model_tokens = max_model_tokens
        self.block_size = block_size
        self.waiting = WaitingView()
        self.prefixes = PrefixView()
        self._find_text_stop = find_text_stop
        self._live = LiveTable(block_size)
        self._strays = Strays()
        self._planned: list[PlannedWork] = []  # of the plan in the making
        self._in_flight = PlansInFlight()
        self._blocks = BlockCounts(total=0, free=0, cached=0, held=0)
        self.next_step_id = 1

    # -- what is there ---------------------------------------------------------------------------

    @property
    def num_in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def num_live(self) -> int:
        return len(self._live)

    @property
    def sequences(self) -> LiveTable:
        return self._live

    @property
    def blocks(self) -> BlockCounts:
        return self._blocks

    @property
    def has_releases(self) -> bool:
        return self._strays.are_to_be_released or self._live.has_unreleased

    def live(self, request_id: str) -> LiveSequence | None:
        return self._live.get(request_id)

    def live_by_handle(self, handle: int) -> LiveSequence | None:
        return self._live.by_handle(handle)

    @property
    def batch(self) -> RunningBatch | None:
        """The static or dynamic batch that runs here; None once all its members have ended."""
        if self._batch is not None and not self._live.num_going_on(self._batch):
            self._batch = None
        return self._batch

    def snapshot(self, now_ms: int = 0, *, is_first_worker: bool = True) -> Snapshot:
        """`now_ms`: by the clock of `WaitingView.see` and `make_plan`."""
        self.prefixes.follow(self._live)
        charged = sum(s.num_charged_blocks - s.num_held_blocks(self.block_size) for s in self._live)
        return Snapshot(
            running=tuple(s.as_running() for s in self._live),
            waiting=self.waiting.claimable(self._live),
            num_waiting_beyond=self.waiting.num_beyond,
            num_waiting_unfit=self.waiting.num_unfit,
            limits=self.limits,
            block_size=self.block_size,
            num_total_blocks=self._blocks.total,
            num_available_blocks=self._blocks.available - charged,
            num_returning_blocks=self._strays.num_blocks,
            max_model_tokens=self._max_model_tokens,
            is_first_worker=is_first_worker,
            known_prefixes=self.prefixes.known,
            coming_prefixes=self.prefixes.coming,
            window_age_ms=now_ms - self.waiting.seen_ms,
            ms_since_admission=NEVER_MS
            if self._last_admission_ms is None
            else now_ms - self._last_admission_ms,
        )

    # -- taking over -------------------------------------------------------------------------------

    def attach(
        self,
        resident: Resident,
        running: Sequence[Admissible],
        batches: Sequence[RunningBatch] = (),
    ) -> StepOutcome:
        """Keep what is resident and current, release the rest, requeue the missing."""
        outcome = StepOutcome()
        records = {record.request_id: record for record in running}
        self.next_step_id = resident.last_step_id + 1
        self._blocks = resident.blocks
        for sequence in resident.sequences:
            self._live.pass_handle(sequence.handle)
            record = records.get(sequence.request_id)
            if record is None or not continues(sequence, record):
                self._strays.add(sequence.handle, sequence.num_held_blocks)
                continue
            del records[sequence.request_id]
            live = self._add(record, sequence.handle, sequence.output_ids)
            resume(live, sequence, outcome, self._find_text_stop)
            live.restart_prediction(self.block_size)
        outcome.requeues.extend(records)
        # One whose members have all ended is over, though their rows are still to be committed.
        going_on = [batch for batch in batches if self._live.num_going_on(batch)]
        self._batch = going_on[-1] if going_on else None
        return outcome

    def _add(self, request: Admissible, handle: int, output_ids: TokenIds) -> LiveSequence:
        num_preempted_tokens = self.waiting.admit(request.request_id)
        return self._live.add(
            request, handle, list(output_ids), num_preempted_tokens=num_preempted_tokens
        )

    # -- planning ----------------------------------------------------------------------------------

    def make_plan(  # noqa: PLR0913 (a decision, and all that it is carried out with)
        self,
        decision: Decision,
        claimed: Sequence[Admissible],
        *,
        epoch: int,
        durable_step: int,
        batch: RunningBatch | None = None,
        now_ms: int = 0,
        predict_ns: Callable[[StepShape], int] | None = None,
    ) -> BatchPlan:
        """Turn a decision into the next plan; claims that were not granted fall away.

        `batch`: what the claimed make up together. `predict_ns`: how long a step of a shape takes.
        """
        self._planned.clear()
        for request_id in decision.preemptions:
            self.end(request_id, Ending.PREEMPTED)
        releases = self._strays.release(self.next_step_id)
        releases += self._live.release_ended(self.next_step_id)
        chunks = [self._chunk(c.request_id, c.num_tokens) for c in decision.chunks]
        claims = {claim.request_id: claim for claim in decision.claims}
        admissions: list[Admission] = []
        for request in claimed:
            claim = claims.get(request.request_id)
            admissions.append(
                self._admit(request, claim.num_expected_cached_tokens if claim else 0)
            )
            chunks.append(self._chunk(request.request_id, claim.num_tokens if claim else 0))
        self._note_skips(decision)
        if claimed:
            self.waiting.note_bypasses(decision.bypassed)
            self._last_admission_ms = now_ms
            self._batch = batch
        step_id, planned = self.next_step_id, tuple(c for c in chunks if c is not None)
        self._in_flight.add(step_id, planned)
        self.next_step_id += 1
        return BatchPlan(
            epoch=epoch,
            step_id=step_id,
            durable_step=durable_step,
            releases=tuple(releases),
            admissions=tuple(admissions),
            chunks=planned,
            predicted_ns=predict_ns(StepShape.of_chunks(self._planned)) if predict_ns else 0,
        )

    def _chunk(self, request_id: str, num_tokens: int) -> Chunk | None:
        sequence = self._live.get(request_id)
        if sequence is None or sequence.ending is not None or num_tokens < 1:
            return None
        start, num_outputs = sequence.planned_computed_tokens, sequence.planned_output_tokens
        num_computed = sequence.predict(num_tokens, self.block_size)
        if not num_computed:
            return None
        samples = sequence.planned_output_tokens > num_outputs
        self._planned.append((start, num_computed, samples))
        sequence.num_skips = 0
        return Chunk(sequence.handle, num_tokens)

    def _admit(self, request: Admissible, num_expected_cached_tokens: int) -> Admission:
        live = self._add(request, self._live.draw_handle(), request.log)
        live.num_expected_cached_tokens = num_expected_cached_tokens
        # One token more than is admitted: a prefix hit lets a plan in flight decode already.
        most_tokens = live.num_prompt_tokens + request.stop.max_tokens - 1
        live.num_admission_blocks = blocks_for(
            min(live.num_admitted_tokens + 1, most_tokens), self.block_size
        )
        live.restart_prediction(self.block_size)
        return live.admission()

    def _note_skips(self, decision: Decision) -> None:
        for skipped in decision.skipped:
            sequence = self._live.get(skipped.request_id)
            if sequence is not None and skipped.reason is not SkipReason.AWAITS_RESULT:
                sequence.num_skips += 1

    # -- results -----------------------------------------------------------------------------------

    def end(self, request_id: str, ending: Ending) -> None:
        """Nothing more for this sequence; the next plan releases it."""
        sequence = self._live.get(request_id)
        if sequence is not None and sequence.ending is None:
            sequence.ending = ending

    def apply_result(self, result: StepResult) -> StepOutcome:
        """Results come in the order of their plans."""
        self._in_flight.end(result.step_id)
        self._blocks = result.blocks
        outcome = StepOutcome(num_expired_prompt_tokens=self._num_expired_prompt_tokens)
        self._num_expired_prompt_tokens = 0
        if (batch := self.batch) is not None:
            outcome.num_held_sequence_steps = batch.size - self._live.num_going_on(batch)
        for row in result.rows:
            sequence = self._live.by_handle(row.handle)
            if sequence is not None:
                if not sequence.is_admitted:
                    self.prefixes.correct(sequence, row.num_cached_tokens)
                apply_row(sequence, row, outcome, self._find_text_stop)
        for refusal in result.refusals:
            apply_refusal(self._live, refusal, outcome)
        self._drop_released(result.step_id, outcome)
        self._in_flight.predict(self._live, self.block_size)
        return outcome

    def cancel(self, request_id: str, reason: FinishReason) -> TokenRow | None:
        """The store says: cancelled or expired. The row that ends it, if it still runs here."""
        live = self._live.get(request_id)
        if live is None or live.ending not in (None, Ending.PREEMPTED):
            return None
        live.ending = Ending.CANCELLED
        if reason is FinishReason.EXPIRED:
            computed = min(live.num_computed_tokens, live.num_prompt_tokens)
            self._num_expired_prompt_tokens += computed - live.num_cached_tokens
        return live.take_row(End(reason=reason))

    def _drop_released(self, step_id: int, outcome: StepOutcome) -> None:
        """Sequences that this step released have left the worker."""
        self._strays.drop_released(step_id)
        for live in self._live.forget_released(step_id):
            if live.ending is Ending.PREEMPTED:
                self.waiting.note_preemption(live.request_id, live.num_computed_tokens)
                outcome.requeues.append(live.request_id)
