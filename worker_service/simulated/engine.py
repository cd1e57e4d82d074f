"""The engine's accounts without its computing: each step takes what the cost model says.

Blocks, prefix cache, clamping and refusals are the real engine's own code, so they are exact. Answers
at once, with the predicted time in the result: whoever asks sleeps, or advances a virtual clock. Knows
nothing of clocks, networks or torch.
"""

from shared.cost_model import CostModel, StepShape
from shared.types import (
    BatchPlan,
    BlockCounts,
    MemoryStats,
    Refusal,
    ResidentSequence,
    StepResult,
    StepRow,
    StepTimings,
)
from worker_service.engine.facts import ModelFacts
from worker_service.engine.row import Row
from worker_service.engine.row_selection import select_rows
from worker_service.engine.sequence_table import SequenceTable, TableLimits
from worker_service.simulated.tokens import SimulatedText


class SimulatedEngine:
    """As `worker_service.engine.engine.Engine`, with simulated time and tokens."""

    def __init__(
        self,
        facts: ModelFacts,
        costs: CostModel,
        text: SimulatedText,
        *,
        kv_bytes: int = 0,
        prefix_cache: bool = True,
    ) -> None:
        self.facts = facts
        self._costs = costs
        self._text = text
        self._memory = MemoryStats(
            kv_bytes=kv_bytes, device_used_bytes=kv_bytes, device_total_bytes=kv_bytes
        )
        self._sequences = SequenceTable(
            TableLimits(
                block_size=facts.block_size,
                num_blocks=facts.num_blocks,
                max_sequences=facts.max_sequences,
                max_model_tokens=facts.max_model_tokens,
                num_token_ids=facts.logits_width,
                prefix_cache=prefix_cache,
            ),
            facts.fingerprint,
        )
        self._lengths: dict[int, int | None] = {}  # by handle: where the model would stop

    def execute(self, plan: BatchPlan) -> StepResult:
        """Run one plan in no time. `timings.idle_ns` is left to the caller."""
        refusals: list[Refusal] = []
        for release in plan.releases:
            self._sequences.release(release.handle)
            self._lengths.pop(release.handle, None)
        for admission in plan.admissions:
            if refusal := self._sequences.admit(admission):
                refusals.append(refusal)
        rows = select_rows(plan, self._sequences, self.facts.max_step_tokens, refusals)
        samples = [row.samples for row in rows]
        chunks = zip(rows, samples, strict=True)
        shape = StepShape.of_chunks((row.start, row.num_tokens, last) for row, last in chunks)
        step_ns = self._costs.predict_ns(shape)
        results = map(self._advance, rows, samples)
        return StepResult(
            epoch=plan.epoch,
            step_id=plan.step_id,
            rows=tuple(results),
            refusals=tuple(refusals),
            blocks=self.blocks(),
            memory=self._memory,
            timings=StepTimings(forward_ns=step_ns, total_ns=step_ns),
        )

    def resident(self) -> tuple[ResidentSequence, ...]:
        return tuple(sequence.resident() for sequence in self._sequences.all())

    def blocks(self) -> BlockCounts:
        return self._sequences.counts()

    def memory(self) -> MemoryStats:
        return self._memory

    def forget_all(self) -> None:
        self._sequences.clear()
        self._lengths.clear()

    def check_invariants(self) -> None:
        self._sequences.check_invariants()

    def _advance(self, row: Row, samples: bool) -> StepRow:
        sequence = row.sequence
        num_cached_tokens, sequence.num_cached_tokens = sequence.num_cached_tokens, 0
        first_index = sequence.num_output_tokens
        sequence.num_computed_tokens += row.num_tokens
        self._sequences.publish(sequence)
        sampled_ids: tuple[int, ...] = ()
        if samples:
            handle = sequence.handle
            if handle not in self._lengths:
                self._lengths[handle] = self._text.num_output_tokens(sequence)
            sampled_ids = (self._text.token_id(sequence, self._lengths[handle]),)
            sequence.append(sampled_ids[0])
        return StepRow(
            handle=sequence.handle,
            num_computed_tokens=row.num_tokens,
            sampled_ids=sampled_ids,
            first_index=first_index,
            num_cached_tokens=num_cached_tokens,
            finish=sequence.finish,
        )
