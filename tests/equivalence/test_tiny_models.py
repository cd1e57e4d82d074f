"""I7 on tiny random models: greedy float32 output equals transformers' `generate`, token for token.

Every chunk size, block size and mode meets every family, by every way that it can be computed; no
near-tie allowance.
"""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from equivalence.harness import WHOLE, run_batch
from tiny_models import FAMILIES, VOCABULARY, WINDOW, tiny_model_dir
from transformers import AutoModelForCausalLM

from worker_service.engine.engine import Engine
from worker_service.engine.engine_config import EngineConfig
from worker_service.engine.kernels.kernels import Kernels
from worker_service.engine.model import PagedModel
from worker_service.engine.slim.compiled_forward import CompiledSlimModel
from worker_service.engine.slim.torch_forward import TorchSlimModel

NUM_NEW_TOKENS = 16
PROMPT_LENGTHS = (37, 5, 70, 37, 16)
CHUNK_SIZES = (1, 7, 16, 64, WHOLE)
BLOCK_SIZES = (8, 16, 32)
MODES = ("plain", "prefix_cache", "preemption", "preemption_without_cache")

# every chunk size with every block size, the modes in turn
CASES = [
    (chunk_size, block_size, MODES[(chunk_index + block_index) % 4])
    for chunk_index, chunk_size in enumerate(CHUNK_SIZES)
    for block_index, block_size in enumerate(BLOCK_SIZES)
]

# how it is computed: with compiled kernels, with torch's operators, through transformers' modules
WAYS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "compiled": (CompiledSlimModel, {"forward": "slim"}),
    "slim": (TorchSlimModel, {"forward": "slim", "kernels": False}),
    "transformers": (PagedModel, {"forward": "transformers"}),
}
SLIM_FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
RUNS = [
    (family, way)
    for family in FAMILIES
    for way in WAYS
    if way == "transformers" or family in SLIM_FAMILIES
]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiny-models")


@cache
def _prompts() -> list[list[int]]:
    """The fourth begins with the first 32 tokens of the first, so that a prefix can be shared."""
    generator = torch.Generator().manual_seed(7)
    prompts = [
        torch.randint(3, VOCABULARY, (length,), generator=generator).tolist()
        for length in PROMPT_LENGTHS
    ]
    prompts[3][:32] = prompts[0][:32]
    return prompts


@cache
def _expected(model_dir: Path) -> list[list[int]]:
    """The oracle's answers: one prompt at a time, nothing of ours in it."""
    oracle: Any = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    outputs = []
    for prompt in _prompts():
        ids = torch.tensor([prompt])
        generated = oracle.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=NUM_NEW_TOKENS,
            eos_token_id=None,
            pad_token_id=0,
        )
        outputs.append(generated[0, len(prompt) :].tolist())
    return outputs


@pytest.mark.parametrize("family", FAMILIES)
def test_the_oracle_itself_says_something(models_dir: Path, family: str) -> None:
    expected = _expected(tiny_model_dir(models_dir, family))

    assert max(PROMPT_LENGTHS) > WINDOW
    assert len({token for output in expected for token in output}) > 10


@pytest.mark.parametrize(("chunk_size", "block_size", "mode"), CASES)
@pytest.mark.parametrize(("family", "way"), RUNS)
def test_greedy_output_equals_generate(
    models_dir: Path, family: str, way: str, chunk_size: int, block_size: int, mode: str
) -> None:
    model_class, how = WAYS[way]
    if way == "compiled" and Kernels.load() is None:
        pytest.skip("no C compiler")
    may_preempt = mode.startswith("preemption")
    model_dir = tiny_model_dir(models_dir, family)
    # the longest request alone fits a small pool; with a second one beside it, it runs short
    longest = -(-(max(PROMPT_LENGTHS) + NUM_NEW_TOKENS) // block_size)
    engine = Engine.load(
        EngineConfig(
            model_dir=model_dir,
            block_size=block_size,
            num_blocks=longest + 1 if may_preempt else 64,
            prefix_cache=mode in ("prefix_cache", "preemption"),
            num_threads=1,
            **how,
        )
    )
    assert type(engine._model) is model_class

    trace = run_batch(engine, _prompts(), NUM_NEW_TOKENS, chunk_size)

    assert trace.outputs == _expected(model_dir)
    assert (trace.num_preemptions > 0) == may_preempt
    assert trace.num_mixed_steps > 0 or chunk_size == 1 or may_preempt
    if mode == "prefix_cache" and chunk_size > 1:
        assert trace.num_cached_tokens == 32
    if mode == "plain":
        assert trace.num_cached_tokens == 0
        assert engine.blocks().cached == 0
