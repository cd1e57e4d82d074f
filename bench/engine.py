"""How long a decode step takes, against torch's products with the model's weights in the same run.

`python -m bench.engine`; `measure()` gives the rows. The reference multiplies one vector a sequence by
every weight matrix of the model, by torch's own kernels: the arithmetic that no such step can leave out.
The least of several times is given: a busy neighbour makes the others its own.
"""

import argparse
import itertools
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from safetensors import safe_open

from shared.types import (
    Admission,
    Assignment,
    BatchPlan,
    Chunk,
    Release,
    ReleaseReason,
    SamplingParams,
    StopRules,
)
from worker_service.engine.engine import Engine
from worker_service.engine.engine_config import EngineConfig

BATCH_SIZES = (1, 8, 32)
NUM_PROMPT_TOKENS = 64
NUM_STEPS = 12
PREFILL_TOKENS = 256
NUM_PREFILLS = 4
NUM_WARM_UP = 3
KV_BYTES = 512 * 2**20


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    step_ms: float
    reference_ms: float


def measure(model_dir: Path) -> Iterator[Row]:
    engine = Engine.load(EngineConfig(model_dir=model_dir, kv_memory_bytes=KV_BYTES))
    weights = load_weights(model_dir)
    load = _Load(engine)
    yield _measure_prefill(load, weights)
    for batch_size in BATCH_SIZES:
        handles = load.admit(batch_size)
        step_ms, reference_ms = [], []
        for number in range(NUM_WARM_UP + NUM_STEPS):
            step = _time_ms(partial(load.decode, handles))
            reference = _time_ms(partial(multiply, weights, batch_size))
            if number >= NUM_WARM_UP:
                step_ms.append(step)
                reference_ms.append(reference)
        load.release(handles)
        yield Row(f"decode step, batch {batch_size}", min(step_ms), min(reference_ms))


def _measure_prefill(load: "_Load", weights: list[torch.Tensor]) -> Row:
    step_ms, reference_ms = [], []
    for _ in range(NUM_PREFILLS):
        step_ms.append(_time_ms(partial(load.prefill, PREFILL_TOKENS)))
        reference_ms.append(_time_ms(partial(multiply, weights, PREFILL_TOKENS)))
    return Row(f"prefill of {PREFILL_TOKENS} tokens", min(step_ms), min(reference_ms))


class _Load:
    """A tiny driver of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._source = random.Random(0)
        self._steps = itertools.count(1)
        self._handles = itertools.count(1)

    def admit(self, batch_size: int) -> list[int]:
        """Prompts computed: from here on the sequences decode."""
        handles = [next(self._handles) for _ in range(batch_size)]
        admissions = tuple(self._admission(handle) for handle in handles)
        chunks = tuple(Chunk(handle, NUM_PROMPT_TOKENS) for handle in handles)
        self._execute(admissions=admissions, chunks=chunks)
        return handles

    def prefill(self, num_tokens: int) -> None:
        handle = next(self._handles)
        admission = self._admission(handle, num_tokens)
        self._execute(admissions=(admission,), chunks=(Chunk(handle, num_tokens),))
        self.release([handle])

    def decode(self, handles: list[int]) -> None:
        self._execute(chunks=tuple(Chunk(handle, 1) for handle in handles))

    def release(self, handles: list[int]) -> None:
        releases = tuple(Release(handle=h, reason=ReleaseReason.FINISHED) for h in handles)
        self._execute(releases=releases)

    def _execute(
        self,
        admissions: tuple[Admission, ...] = (),
        chunks: tuple[Chunk, ...] = (),
        releases: tuple[Release, ...] = (),
    ) -> None:
        plan = BatchPlan(
            epoch=1,
            step_id=next(self._steps),
            admissions=admissions,
            chunks=chunks,
            releases=releases,
        )
        result = self._engine.execute(plan)
        assert not result.refusals, result.refusals

    def _admission(self, handle: int, num_tokens: int = NUM_PROMPT_TOKENS) -> Admission:
        ids = tuple(self._source.randrange(16, 1000) for _ in range(num_tokens))
        return Admission(
            request_id=f"request-{handle}",
            assignment=Assignment(handle, 0),
            handle=handle,
            token_ids=ids,
            num_prompt_tokens=len(ids),
            sampling=SamplingParams(temperature=0.0),
            stop=StopRules(max_tokens=1000),
        )


def load_weights(model_dir: Path) -> list[torch.Tensor]:
    """Every matrix of the model, float32."""
    weights = []
    for path in sorted(model_dir.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            tensors = (file.get_tensor(name) for name in file.keys())  # noqa: SIM118 (no mapping)
            weights += [tensor.float() for tensor in tensors if tensor.dim() == 2]
    return weights


def multiply(weights: list[torch.Tensor], batch_size: int) -> None:
    with torch.inference_mode():
        for weight in weights:
            torch.nn.functional.linear(torch.ones(batch_size, weight.shape[1]), weight)


def _time_ms(work: Callable[[], None]) -> float:
    started_ns = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - started_ns) / 1e6


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    from tokentide.models import packaged_model_dir

    for row in measure(packaged_model_dir()):
        times = f"{row.step_ms:.1f} ms, weight products alone {row.reference_ms:.1f} ms"
        print(f"{row.name}: {times}")


if __name__ == "__main__":
    main()
