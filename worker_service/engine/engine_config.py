"""What an engine is given, and what follows from it once the model is loaded: its blocks and its facts."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch

from shared.blocks import blocks_for
from worker_service.engine.facts import ModelFacts
from worker_service.engine.forward_path import FORWARDS, WEIGHTS
from worker_service.engine.kv_cache import block_bytes
from worker_service.engine.memory import (
    KVBudget,
    count_blocks,
    refuse_beyond_limit,
    warn_near_limit,
)
from worker_service.engine.model import StepModel
from worker_service.engine.model_folder import LoadedModel

# How much smaller than in float32 weights become that are kept in fewer bits.
_SHRINKS = {"dtype": 1, "bfloat16": 2, "int8": 4}


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


def num_blocks_for(config: EngineConfig, loaded: LoadedModel, model: StepModel) -> int:
    budget = KVBudget(
        num_blocks=config.num_blocks,
        num_bytes=config.kv_memory_bytes,
        share=config.kv_memory_share,
    )
    bytes_per_block = block_bytes(model.layers, config.block_size, loaded.dtype)
    num_blocks = count_blocks(
        budget,
        bytes_per_block,
        config.max_sequences * blocks_for(loaded.max_model_tokens, config.block_size),
        config.device,
        beside_bytes=config.block_size * model.bytes_per_position,
    )
    needs = {
        "the weights": loaded.weight_bytes // _SHRINKS[config.weights],
        "the cache (kv_memory)": num_blocks * bytes_per_block,
    }
    refuse_beyond_limit(needs, config.device)
    warn_near_limit(needs, config.device)
    return num_blocks


def _fingerprint(loaded: LoadedModel, weights: str) -> str:
    """Rounded weights are another model: their workers share no pool with whole ones."""
    if weights == "dtype":
        return loaded.fingerprint
    return hashlib.sha256(f"{loaded.fingerprint} {weights}".encode()).hexdigest()


def facts_of(
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
