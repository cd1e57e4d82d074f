"""A worker's engine without a model: block-exact accounts, tokens that are a function of the seed.

Same interface and semantics as `worker_service.engine.engine.Engine`: first
releases, then admissions, which take all blocks of prompt and log at once or are refused, then
chunks, clamped.
"""

import hashlib
from dataclasses import dataclass

from shared.blocks import blocks_for
from shared.types import (
    Admission,
    BatchPlan,
    BlockCounts,
    Chunk,
    FinishReason,
    MemoryStats,
    Refusal,
    RefusalReason,
    ResidentSequence,
    StepResult,
    StepRow,
)


def sampled_id(seed: int, output_index: int, vocabulary: int = 1000, salt: str = "") -> int:
    """What the fake model says: whatever was chunked, preempted or moved. `salt`: a model of its own."""
    digest = hashlib.blake2b(f"{seed}/{output_index}{salt}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") % vocabulary


@dataclass(slots=True)
class FakeSequence:
    admission: Admission
    token_ids: list[int]
    num_held_blocks: int
    num_computed_tokens: int = 0
    num_unreported_cached_tokens: int = 0
    finish: FinishReason | None = None

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.admission.num_prompt_tokens

    @property
    def num_pending_tokens(self) -> int:
        return 0 if self.finish else len(self.token_ids) - self.num_computed_tokens

    def sample(self, salt: str) -> int:
        stop = self.admission.stop
        index = self.num_output_tokens
        token_id = sampled_id(self.admission.sampling.seed, index, salt=salt)
        self.token_ids.append(token_id)
        if token_id in stop.stop_token_ids and index >= stop.min_tokens:
            self.finish = FinishReason.STOP_TOKEN
        elif self.num_output_tokens >= stop.max_tokens:
            self.finish = FinishReason.LENGTH
        return token_id


class FakeWorker:
    def __init__(
        self,
        *,
        num_blocks: int = 64,
        block_size: int = 16,
        max_sequences: int = 0,
        finds_prefixes: bool = False,
        salt: str = "",
    ) -> None:
        """`finds_prefixes`: admissions find some full blocks computed, in copies of their own. `salt`: this
        worker draws other tokens than others."""
        self._salt = salt
        self.num_failing_rows = 0  # so many chunks fail, as after logits that are not numbers
        self.failed_ids: set[str] = set()
        self.block_size = block_size
        self.num_blocks = num_blocks
        self._max_sequences = max_sequences
        self._finds_prefixes = finds_prefixes
        self._num_free = num_blocks
        self._num_cached = 0
        self._sequences: dict[int, FakeSequence] = {}

    def execute(self, plan: BatchPlan) -> StepResult:
        for release in plan.releases:
            self._release(release.handle)
        refusals = [r for a in plan.admissions if (r := self._admit(a)) is not None]
        refused = {refusal.handle for refusal in refusals}
        rows: list[StepRow] = []
        for chunk in plan.chunks:
            if chunk.handle in refused:
                continue
            outcome = self._advance(chunk)
            if isinstance(outcome, StepRow):
                rows.append(outcome)
            elif outcome is not None:
                refusals.append(outcome)
        self.check_invariants()
        return StepResult(
            epoch=plan.epoch,
            step_id=plan.step_id,
            rows=tuple(rows),
            refusals=tuple(refusals),
            blocks=self.blocks(),
        )

    def resident(self) -> tuple[ResidentSequence, ...]:
        return tuple(
            ResidentSequence(
                request_id=sequence.admission.request_id,
                assignment=sequence.admission.assignment,
                handle=handle,
                num_prompt_tokens=sequence.admission.num_prompt_tokens,
                num_computed_tokens=sequence.num_computed_tokens,
                output_ids=tuple(sequence.token_ids[sequence.admission.num_prompt_tokens :]),
                num_held_blocks=sequence.num_held_blocks,
                finish=sequence.finish,
            )
            for handle, sequence in self._sequences.items()
        )

    def blocks(self) -> BlockCounts:
        return BlockCounts(
            total=self.num_blocks,
            free=self._num_free,
            cached=self._num_cached,
            held=sum(s.num_held_blocks for s in self._sequences.values()),
        )

    def memory(self) -> MemoryStats:
        return MemoryStats()

    def forget_all(self) -> None:
        for handle in tuple(self._sequences):
            self._release(handle)

    def check_invariants(self) -> None:
        counts = self.blocks()
        assert counts.free >= 0, counts
        assert counts.cached >= 0, counts
        assert counts.free + counts.cached + counts.held == counts.total, counts

    def _release(self, handle: int) -> None:
        """Full blocks stay as prefix cache. An unknown handle is no fault."""
        sequence = self._sequences.pop(handle, None)
        if sequence is not None:
            num_full = sequence.num_computed_tokens // self.block_size
            self._num_cached += num_full
            self._num_free += sequence.num_held_blocks - num_full

    def _forget_failed(self, handle: int) -> None:
        """None of its blocks may be found again."""
        sequence = self._sequences.pop(handle)
        self._num_free += sequence.num_held_blocks
        self.failed_ids.add(sequence.admission.request_id)

    def _allocate(self, num_blocks: int) -> bool:
        if num_blocks > self._num_free + self._num_cached:
            return False
        from_free = min(num_blocks, self._num_free)
        self._num_free -= from_free
        self._num_cached -= num_blocks - from_free
        return True

    def _admit(self, admission: Admission) -> Refusal | None:
        handle = admission.handle
        if handle in self._sequences:
            return Refusal(handle=handle, reason=RefusalReason.DUPLICATE_HANDLE)
        if self._max_sequences and len(self._sequences) >= self._max_sequences:
            return Refusal(handle=handle, reason=RefusalReason.SEQUENCE_CAP)
        num_held = blocks_for(len(admission.token_ids), self.block_size)
        if not self._allocate(num_held):
            return Refusal(handle=handle, reason=RefusalReason.NO_FREE_BLOCK)
        sequence = FakeSequence(admission, list(admission.token_ids), num_held)
        if self._finds_prefixes:
            num_findable = (len(admission.token_ids) - 1) // self.block_size
            num_found = sampled_id(admission.sampling.seed, handle) % (num_findable + 1)
            sequence.num_computed_tokens = num_found * self.block_size
            sequence.num_unreported_cached_tokens = sequence.num_computed_tokens
        self._sequences[handle] = sequence
        return None

    def _advance(self, chunk: Chunk) -> StepRow | Refusal | None:
        """None: nothing is pending."""
        sequence = self._sequences.get(chunk.handle)
        if sequence is None:
            return Refusal(handle=chunk.handle, reason=RefusalReason.UNKNOWN_HANDLE)
        num_tokens = min(chunk.max_num_tokens, sequence.num_pending_tokens)
        if num_tokens < 1:
            return None
        if self.num_failing_rows:
            self.num_failing_rows -= 1
            self._forget_failed(chunk.handle)
            return Refusal(handle=chunk.handle, reason=RefusalReason.FAILED, detail="not a number")
        num_held = blocks_for(sequence.num_computed_tokens + num_tokens, self.block_size)
        num_new = max(0, num_held - sequence.num_held_blocks)
        if not self._allocate(num_new):
            return Refusal(handle=chunk.handle, reason=RefusalReason.NO_FREE_BLOCK)
        sequence.num_held_blocks += num_new
        first_index = sequence.num_output_tokens
        samples = num_tokens == sequence.num_pending_tokens
        sequence.num_computed_tokens += num_tokens
        num_cached = sequence.num_unreported_cached_tokens
        sequence.num_unreported_cached_tokens = 0
        return StepRow(
            handle=chunk.handle,
            num_computed_tokens=num_tokens,
            sampled_ids=(sequence.sample(self._salt),) if samples else (),
            first_index=first_index,
            num_cached_tokens=num_cached,
            finish=sequence.finish,
        )
