"""What the machine can do at most: measured, and what follows for a workload. Attention is left out.

The limit of a step: the weights read once from memory, or its arithmetic at the speed of a large matrix
product, whichever takes longer; prompts are computed first, then all that is left decodes together.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.peers.system import THREADS
from tokentide.bench.workload import WorkRequest

NUM_TIMES = 20
READ_BYTES = 1 << 30
GEMM_SHAPES = ((512, 576, 1536), (512, 1536, 576), (1024, 1024, 1024))  # rows, in, out
BYTES = 4  # float32


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    read_bytes_per_s: float
    gemm_flops_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    num_layer_weights: int  # all matrices but the output's
    num_output_weights: int

    @classmethod
    def of(cls, model_dir: Path) -> "ModelSize":
        config: dict[str, Any] = json.loads((model_dir / "config.json").read_text())
        width, inner = config["hidden_size"], config["intermediate_size"]
        head = config.get("head_dim") or width // config["num_attention_heads"]
        query = config["num_attention_heads"] * head
        key_value = config["num_key_value_heads"] * head
        layer = 2 * width * query + 2 * width * key_value + 3 * width * inner
        return cls(
            num_layer_weights=config["num_hidden_layers"] * layer,
            num_output_weights=config["vocab_size"] * width,
        )

    def step_s(self, num_tokens: int, num_sampled: int, machine: Machine) -> float:
        weights = self.num_layer_weights + self.num_output_weights
        flops = 2 * (self.num_layer_weights * num_tokens + self.num_output_weights * num_sampled)
        return max(weights * BYTES / machine.read_bytes_per_s, flops / machine.gemm_flops_per_s)


def limit_tokens_per_s(
    requests: Sequence[WorkRequest], model: ModelSize, machine: Machine, shared_prefix: int = 0
) -> float:
    """Generated tokens/s that nothing on this machine can pass, with all requests there at once.

    A shared prefix is computed once.
    """
    num_prompt_tokens = shared_prefix + sum(len(r.prompt) - shared_prefix for r in requests)
    seconds = model.step_s(num_prompt_tokens, len(requests), machine)
    outputs = [request.max_tokens for request in requests]
    for number in range(1, max(outputs)):
        batch = sum(output > number for output in outputs)
        seconds += model.step_s(batch, batch, machine)
    return sum(outputs) / seconds


def measure_machine() -> Machine:
    import torch

    torch.set_num_threads(THREADS)
    block = torch.ones(READ_BYTES // BYTES, dtype=torch.float32)
    read_s = _best_s(block.sum)
    speeds = []
    for rows, width, out in GEMM_SHAPES:
        product = partial(torch.matmul, torch.randn(rows, width), torch.randn(width, out))
        speeds.append(2 * rows * width * out / _best_s(product))
    return Machine(read_bytes_per_s=READ_BYTES / read_s, gemm_flops_per_s=max(speeds))


def _best_s(work: Callable[[], Any]) -> float:
    times = []
    for _ in range(NUM_TIMES):
        started_s = time.perf_counter()
        work()
        times.append(time.perf_counter() - started_s)
    return min(times)
