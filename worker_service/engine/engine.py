"""One step at a time: releases, admissions, then one forward pass over all chunks, then sampling.

A bad row never spoils a plan: it is refused and the others run. Everything is called from one
thread. Knows nothing of networks, drivers, epochs or the outbox.
"""

import logging
import time
from collections.abc import Sequence as Many
from dataclasses import dataclass

import numpy as np
import torch

from shared.errors import ModelUnusable
from shared.types import (
    BatchPlan,
    BlockCounts,
    MemoryStats,
    Refusal,
    RefusalReason,
    ResidentSequence,
    StepResult,
    StepRow,
)
from worker_service.engine.batch_input import StepInput, build_step_input
from worker_service.engine.cache_touching import start_touching
from worker_service.engine.device import raise_if_lost
from worker_service.engine.engine_config import EngineConfig, facts_of, num_blocks_for
from worker_service.engine.facts import ModelFacts
from worker_service.engine.forward_path import ModelSource, load_step_model
from worker_service.engine.kv_cache import KVCache
from worker_service.engine.memory import MemoryProbe
from worker_service.engine.model import StepModel
from worker_service.engine.row import Row
from worker_service.engine.row_selection import select_rows
from worker_service.engine.sampler import Draw, sample
from worker_service.engine.sequence import Sequence
from worker_service.engine.sequence_table import SequenceTable, TableLimits
from worker_service.engine.step_clock import StepClock

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Computed:
    token_ids: list[int | None]  # for each row, None where it does not sample
    bad: set[int]  # handles: their rows came out as no numbers
    spoiled: set[int]  # handles: they were built on another's tokens that did


class Engine:
    """Owns the live sequences, the cache and the model of one worker."""

    def __init__(
        self, config: EngineConfig, facts: ModelFacts, model: StepModel, cache: KVCache
    ) -> None:
        self.facts = facts
        self._config = config
        self._model = model
        self._cache = cache
        self._is_busy, self._ended_s = False, 0.0  # read by the thread that touches the cache
        self._memory = MemoryProbe(config.device, cache.num_bytes)
        self._sequences = SequenceTable(
            TableLimits(
                block_size=facts.block_size,
                num_blocks=facts.num_blocks,
                max_sequences=facts.max_sequences,
                max_model_tokens=facts.max_model_tokens,
                num_token_ids=model.num_embeddings,
                prefix_cache=config.prefix_cache,
            ),
            facts.fingerprint,
        )

    @classmethod
    def load(cls, config: EngineConfig) -> "Engine":
        """Read the model, take the cache's memory. Raises ModelUnusable with one clear line."""
        if config.num_threads:
            torch.set_num_threads(config.num_threads)
        loaded, model = load_step_model(
            ModelSource(
                model_dir=config.model_dir,
                dtype=config.dtype,
                device=config.device,
                forward=config.forward,
                kernels=config.kernels,
                weights=config.weights,
            )
        )
        num_blocks = num_blocks_for(config, loaded, model)
        try:
            cache = KVCache(
                model.layers, num_blocks, config.block_size, loaded.dtype, config.device
            )
        except (RuntimeError, MemoryError) as error:
            raise ModelUnusable(f"no memory for {num_blocks} blocks: {error}") from error
        return cls(config, facts_of(config, loaded, model, num_blocks), model, cache)

    def touch_cache(self) -> None:
        """Have the cache's memory backed while no step runs."""
        start_touching(self._cache, self._idle_s)

    def _idle_s(self) -> float:
        return 0.0 if self._is_busy else time.monotonic() - self._ended_s

    def execute(self, plan: BatchPlan) -> StepResult:
        """Run one plan. Rows that cannot run, or fail, are refused; a failed sequence is forgotten.

        `timings.idle_ns` is left to the caller, who knows when the plan came.
        """
        self._is_busy = True
        try:
            return self._execute(plan)
        finally:
            self._is_busy, self._ended_s = False, time.monotonic()

    def _execute(self, plan: BatchPlan) -> StepResult:
        clock = StepClock()
        refusals: list[Refusal] = []
        for release in plan.releases:
            self._sequences.release(release.handle)
        for admission in plan.admissions:
            if refusal := self._sequences.admit(admission):
                refusals.append(refusal)
        rows = select_rows(plan, self._sequences, self.facts.max_step_tokens, refusals)
        results = self._run_rows(rows, refusals, clock) if rows else ()
        return StepResult(
            epoch=plan.epoch,
            step_id=plan.step_id,
            rows=tuple(results),
            refusals=tuple(refusals),
            blocks=self.blocks(),
            memory=self.memory(),
            timings=clock.timings(),
        )

    def resident(self) -> tuple[ResidentSequence, ...]:
        return tuple(sequence.resident() for sequence in self._sequences.all())

    def blocks(self) -> BlockCounts:
        return self._sequences.counts()

    def memory(self) -> MemoryStats:
        return self._memory.read()

    def forget_all(self) -> None:
        """Drop every live sequence; computed blocks stay as prefix cache."""
        self._sequences.clear()

    def check_invariants(self) -> None:
        self._sequences.check_invariants()

    def _run_rows(
        self, rows: Many[Row], refusals: list[Refusal], clock: StepClock
    ) -> Many[StepRow]:
        try:
            computed = self._compute(rows, clock)
        except Exception as error:  # the outermost loop of a step: its rows fail, the worker lives
            raise_if_lost(self._config.device, error)
            log.exception("a step failed with all its %d rows", len(rows))
            detail = f"{type(error).__name__}: {error}"
            refusals += [self._fail(row.sequence, detail) for row in rows]
            return ()
        results = []
        for row, token_id in zip(rows, computed.token_ids, strict=True):
            if row.sequence.handle in computed.spoiled:
                self._cache.zero(self._sequences.give_back(row.sequence))
            elif row.sequence.handle in computed.bad:
                refusals.append(self._fail(row.sequence, "NaN or infinity in the computation"))
            else:
                results.append(self._advance(row, token_id))
        clock.sampled()
        return results

    def _compute(self, rows: Many[Row], clock: StepClock) -> "_Computed":
        cache, device = self._cache, self._config.device
        step = build_step_input(rows, cache.block_size, cache.null_block_id, device)
        clock.prepared()
        output = self._model.forward(step, cache)
        is_finite_T = output.is_finite_T.cpu().numpy()  # waits for the device
        clock.forwarded()
        sampling = [row.sequence for row in rows if row.samples]
        with torch.inference_mode():
            sampled = sample(output.logits_RV, [_draw_of(sequence) for sequence in sampling])
        token_ids = iter(sampled.token_ids)
        bad = {s.handle for s, good in zip(sampling, sampled.is_finite, strict=True) if not good}
        first_bad = {} if is_finite_T.all() else _first_bad_positions(rows, step, is_finite_T)
        return _Computed(
            token_ids=[next(token_ids) if row.samples else None for row in rows],
            bad=bad | first_bad.keys(),
            spoiled=self._sequences.spoiled(first_bad) if first_bad else set(),
        )

    def _advance(self, row: Row, token_id: int | None) -> StepRow:
        """The chunk is computed: count it, let its blocks be found, take its token."""
        sequence = row.sequence
        num_cached_tokens, sequence.num_cached_tokens = sequence.num_cached_tokens, 0
        first_index = sequence.num_output_tokens
        sequence.num_computed_tokens += row.num_tokens
        self._sequences.publish(sequence)
        if token_id is not None:
            sequence.append(token_id)
        return StepRow(
            handle=sequence.handle,
            num_computed_tokens=row.num_tokens,
            sampled_ids=() if token_id is None else (token_id,),
            first_index=first_index,
            num_cached_tokens=num_cached_tokens,
            finish=sequence.finish,
        )

    def _fail(self, sequence: Sequence, detail: str) -> Refusal:
        """Forget the sequence, and let nobody read what it may have written."""
        self._cache.zero(self._sequences.fail(sequence))
        return Refusal(handle=sequence.handle, reason=RefusalReason.FAILED, detail=detail)


def _first_bad_positions(
    rows: Many[Row], step: StepInput, is_finite_T: np.ndarray
) -> dict[int, int]:
    """Of each handle with tokens that are no numbers, the first one's position."""
    position_T = step.position_T.cpu().numpy()
    first_bad: dict[int, int] = {}
    for token in np.flatnonzero(~is_finite_T):
        handle, position = rows[step.token_row[token]].sequence.handle, int(position_T[token])
        first_bad[handle] = min(first_bad.get(handle, position), position)
    return first_bad


def _draw_of(sequence: Sequence) -> Draw:
    return Draw(
        sampling=sequence.sampling,
        token_index=sequence.num_output_tokens,
        forbidden_ids=() if sequence.can_stop() else tuple(sequence.stop_ids),
    )
