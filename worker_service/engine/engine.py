"""One step at a time: releases, admissions, then one forward pass over all chunks, then sampling.

A bad row never spoils a plan: it is refused and the others run. Everything is called from one
thread. Knows nothing of networks, drivers, epochs or the outbox.
"""

import hashlib
import logging
import time
from collections.abc import Sequence as Many
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from shared.blocks import blocks_for
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
from worker_service.engine.facts import ModelFacts
from worker_service.engine.forward_path import FORWARDS, WEIGHTS, ModelSource, load_step_model
from worker_service.engine.kv_cache import KVCache, block_bytes
from worker_service.engine.memory import KVBudget, MemoryProbe, count_blocks
from worker_service.engine.model import StepModel
from worker_service.engine.model_folder import LoadedModel
from worker_service.engine.row import Row
from worker_service.engine.row_selection import select_rows
from worker_service.engine.sampler import Draw, sample
from worker_service.engine.sequence import Sequence
from worker_service.engine.sequence_table import SequenceTable, TableLimits
from worker_service.engine.step_clock import StepClock

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    model_dir: Path
    model_name: str = ""  # empty = the folder's name
    dtype: str = "float32"  # float32, bfloat16, float16
    device: str = "cpu"  # cpu, cuda, cuda:N
    block_size: int = 16  # tokens per block
    kv_memory_bytes: int = 0  # 0 = a share of free memory
    kv_memory_share: float = 0.5  # of the memory free after the weights are loaded
    num_blocks: int = 0  # 0 = as many as the memory allows
    prefix_cache: bool = True
    max_sequences: int = 256
    max_step_tokens: int = 0  # 0 = no limit
    num_threads: int = 0  # torch's, on the CPU; 0 = as it is
    forward: str = "auto"  # auto, slim, transformers
    kernels: bool = True  # compiled ones, on the CPU, where there is a compiler
    weights: str = "dtype"  # bfloat16, int8: kept in fewer bits by the compiled forward

    def __post_init__(self) -> None:
        if self.block_size < 1 or self.max_sequences < 1:
            raise ValueError("block_size and max_sequences must be at least 1")
        if not 0 < self.kv_memory_share <= 1:
            raise ValueError(f"kv_memory_share must be in (0, 1], got {self.kv_memory_share}")
        if min(self.kv_memory_bytes, self.num_blocks, self.max_step_tokens, self.num_threads) < 0:
            raise ValueError("memory, blocks, step tokens and threads cannot be negative")
        if self.forward not in FORWARDS:
            raise ValueError(f"forward must be one of {', '.join(FORWARDS)}, got {self.forward}")
        if self.weights not in WEIGHTS:
            raise ValueError(f"weights must be one of {', '.join(WEIGHTS)}, got {self.weights}")


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
        num_blocks = _num_blocks(config, loaded, model)
        try:
            cache = KVCache(
                model.layers, num_blocks, config.block_size, loaded.dtype, config.device
            )
        except (RuntimeError, MemoryError) as error:
            raise ModelUnusable(f"no memory for {num_blocks} blocks: {error}") from error
        return cls(config, _facts(config, loaded, model, num_blocks), model, cache)

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


def _num_blocks(config: EngineConfig, loaded: LoadedModel, model: StepModel) -> int:
    budget = KVBudget(
        num_blocks=config.num_blocks,
        num_bytes=config.kv_memory_bytes,
        share=config.kv_memory_share,
    )
    return count_blocks(
        budget,
        block_bytes(model.layers, config.block_size, loaded.dtype),
        config.max_sequences * blocks_for(loaded.max_model_tokens, config.block_size),
        config.device,
        beside_bytes=config.block_size * model.bytes_per_position,
    )


def _fingerprint(loaded: LoadedModel, weights: str) -> str:
    """Rounded weights are another model: their workers share no pool with whole ones."""
    if weights == "dtype":
        return loaded.fingerprint
    return hashlib.sha256(f"{loaded.fingerprint} {weights}".encode()).hexdigest()


def _facts(
    config: EngineConfig, loaded: LoadedModel, model: StepModel, num_blocks: int
) -> ModelFacts:
    device = config.device
    if device.startswith("cuda"):
        device = f"{device} ({torch.cuda.get_device_name(torch.device(device))})"
    return ModelFacts(
        model_name=config.model_name or config.model_dir.resolve().name,
        fingerprint=_fingerprint(loaded, config.weights),
        dtype=config.dtype,
        device=device,
        block_size=config.block_size,
        num_blocks=num_blocks,
        max_model_tokens=loaded.max_model_tokens,
        logits_width=model.logits_width,
        eos_token_ids=loaded.eos_token_ids,
        max_step_tokens=config.max_step_tokens,
        max_sequences=config.max_sequences,
    )
