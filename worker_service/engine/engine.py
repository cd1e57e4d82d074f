"""One step at a time: releases, admissions, then one forward pass over all chunks, then sampling.

A bad row never spoils a plan: it is refused and the others run. Everything is called from one
thread. Knows nothing of networks, drivers, epochs or the outbox.
"""

import logging
from collections.abc import Sequence as Many
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns

import numpy as np
import torch

from shared.types import (
    BatchPlan,
    BlockCounts,
    MemoryStats,
    Refusal,
    RefusalReason,
    ResidentSequence,
    StepResult,
    StepRow,
    StepTimings,
    TokenIds,
)
from worker_service.engine.batch_input import Row, build_step_input
from worker_service.engine.kv_cache import KVCache, block_bytes
from worker_service.engine.memory import KVBudget, MemoryProbe, count_blocks
from worker_service.engine.model import PagedModel
from worker_service.engine.model_folder import LoadedModel, load_model
from worker_service.engine.sampler import Draw, Sampled, sample
from worker_service.engine.self_check import check_against_itself
from worker_service.engine.sequence import Sequence
from worker_service.engine.sequence_table import SequenceTable, TableLimits

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

    def __post_init__(self) -> None:
        if self.block_size < 1 or self.max_sequences < 1:
            raise ValueError("block_size and max_sequences must be at least 1")
        if not 0 < self.kv_memory_share <= 1:
            raise ValueError(f"kv_memory_share must be in (0, 1], got {self.kv_memory_share}")
        if min(self.kv_memory_bytes, self.num_blocks, self.max_step_tokens, self.num_threads) < 0:
            raise ValueError("memory, blocks, step tokens and threads cannot be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What an engine is; fixed once it is loaded."""

    model_name: str
    fingerprint: str  # SHA-256 in hexadecimal: weights, dtype, config, tokenizer files
    dtype: str
    device: str  # a label for people
    block_size: int
    num_blocks: int
    max_model_tokens: int
    logits_width: int
    eos_token_ids: TokenIds
    max_step_tokens: int  # 0 = no limit
    max_sequences: int


class Engine:
    """Owns the live sequences, the cache and the model of one worker."""

    def __init__(
        self, config: EngineConfig, facts: ModelFacts, model: PagedModel, cache: KVCache
    ) -> None:
        self.facts = facts
        self._config = config
        self._model = model
        self._cache = cache
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
        loaded = load_model(config.model_dir, config.dtype, config.device)
        reference = check_against_itself.reference(loaded)
        model = PagedModel(loaded)
        check_against_itself(model, loaded, reference)
        num_blocks = _num_blocks(config, loaded, model)
        cache = KVCache(model.layers, num_blocks, config.block_size, loaded.dtype, config.device)
        return cls(config, _facts(config, loaded, model, num_blocks), model, cache)
