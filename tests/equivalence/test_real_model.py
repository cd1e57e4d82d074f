"""I7 on the packaged real model, with its near-tie rule.

Greedy float32 output equals transformers' `generate`; at the first difference the oracle's two best
logits must be closer than 1e-4, and no more than one token in 5,000 may be such a near-tie.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from equivalence.harness import WHOLE, Trace, run_batch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tokentide.models import packaged_model_dir
from worker_service.engine.engine import Engine
from worker_service.engine.engine_config import EngineConfig

NUM_NEW_TOKENS = 24
NEAR_TIE_LOGIT_GAP = 1e-4
MAX_NEAR_TIE_SHARE = 1 / 5000

QUESTIONS = (
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "List the planets of the solar system.",
    "Explain in two sentences why the sky is blue.",
    "Translate to French: The cat sleeps on the warm windowsill.",
    "What is 17 plus 25? Show how you get there.",
    "Write a Python function that reverses a string, and explain each line of it to a beginner.",
    "Summarize: A reservoir behind a dam stores water in the wet season. When power is wanted, "
    "gates open, water falls through turbines, and generators turn its motion into electricity. "
    "The lake also waters fields, holds back floods and lets people swim, but it drowns valleys "
    "and keeps fish from the streams where they were born.",
    "A farmer has three fields. The first gives 120 sacks of wheat, the second twice as many, the "
    "third as many as the first two together. He keeps a tenth as seed, gives a fifth of the rest "
    "to his brother, and sells what is left at four coins a sack. How many coins does he get? "
    "Think step by step, then give the number alone on the last line.",
    "Continue the story: The lighthouse had been dark for eleven years when Mara found the key. It "
    "lay under a loose board in her grandfather's boathouse, wrapped in oilcloth, beside a letter "
    "that began with her name. She read it twice by the light of her phone. Then she walked down "
    "to the water, where the old rowing boat still lay upside down on the stones.",
)

# (chunk size, block size, mode): each chunk size, each block size and each mode; 1 on short prompts
CASES = {
    "auto": (
        (1, 16, "prefix_cache"),
        (7, 8, "plain"),
        (7, 32, "preemption"),
        (16, 16, "prefix_cache"),
        (16, 8, "preemption"),
        (64, 32, "plain"),
        (64, 16, "preemption"),
        (WHOLE, 8, "prefix_cache"),
        (WHOLE, 32, "plain"),
    ),
    "no_kernels": ((1, 16, "prefix_cache"), (16, 8, "preemption"), (WHOLE, 32, "plain")),
    "transformers": ((7, 8, "plain"), (64, 16, "preemption"), (WHOLE, 8, "prefix_cache")),
}
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
WAYS: dict[str, dict[str, Any]] = {
    "auto": {},
    "no_kernels": {"forward": "slim", "kernels": False},
    "transformers": {"forward": "transformers"},
}

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(400)]


@dataclass(frozen=True, slots=True)
class Oracle:
    """What plain transformers says: tokens, and the gap between its two best logits at each."""

    prompts: list[list[int]]
    outputs: list[list[int]]
    gaps: list[list[float]]


@pytest.fixture(scope="module")
def model_dir() -> Path:
    return packaged_model_dir()


@pytest.fixture(scope="module")
def oracle(model_dir: Path) -> Oracle:
    tokenizer = AutoTokenizer.from_pretrained(model_dir, local_files_only=True)
    model: Any = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    prompts, outputs, gaps = [], [], []
    for question in QUESTIONS:
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
        )
        prompt = tokenizer(text, add_special_tokens=False).input_ids
        ids = torch.tensor([prompt])
        generated = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=NUM_NEW_TOKENS,
            eos_token_id=None,
            pad_token_id=0,
            output_logits=True,
            return_dict_in_generate=True,
        )
        best_two = [logits[0].topk(2).values.tolist() for logits in generated.logits]
        prompts.append(prompt)
        outputs.append(generated.sequences[0, len(prompt) :].tolist())
        gaps.append([first - second for first, second in best_two])
    return Oracle(prompts, outputs, gaps)


@pytest.mark.parametrize("way", WAYS)
def test_greedy_output_equals_generate_up_to_near_ties(
    model_dir: Path, oracle: Oracle, way: str
) -> None:
    num_near_ties = num_tokens = num_preemptions = 0
    for chunk_size, block_size, mode in CASES[way]:
        indices = range(4) if chunk_size == 1 else range(len(QUESTIONS))
        prompts = [oracle.prompts[index] for index in indices]

        trace = _run(
            _config(model_dir, prompts, block_size, mode, **WAYS[way]), prompts, chunk_size
        )

        assert (trace.num_preemptions > 0) == (mode == "preemption")
        if chunk_size > 1:  # at one token a step nothing is computed yet when the others come
            assert (trace.num_cached_tokens > 0) == (mode != "plain")
        num_preemptions += trace.num_preemptions
        num_tokens += sum(map(len, trace.outputs))
        for index, output in zip(indices, trace.outputs, strict=True):
            num_near_ties += _near_ties(oracle, index, output)
    print(f"\n{way}: {num_tokens} tokens, {num_near_ties} near-ties, {num_preemptions} preemptions")
    assert num_near_ties <= num_tokens * MAX_NEAR_TIE_SHARE


def test_the_batch_size_changes_no_token(model_dir: Path, oracle: Oracle) -> None:
    longest = -(-(max(map(len, oracle.prompts)) + NUM_NEW_TOKENS) // 16)
    engine = Engine.load(
        EngineConfig(
            model_dir=model_dir, num_blocks=64 * longest, prefix_cache=False, num_threads=2
        )
    )
    for batch_size in BATCH_SIZES:
        indices = [index % len(QUESTIONS) for index in range(max(batch_size, len(QUESTIONS)))]
        num_near_ties = 0
        for start in range(0, len(indices), batch_size):
            batch = indices[start : start + batch_size]
            prompts = [oracle.prompts[index] for index in batch]
            outputs = run_batch(engine, prompts, NUM_NEW_TOKENS, WHOLE, stagger_steps=0).outputs
            for index, output in zip(batch, outputs, strict=True):
                num_near_ties += _near_ties(oracle, index, output)
        num_tokens = NUM_NEW_TOKENS * len(indices)
        print(f"\nbatch of {batch_size}: {num_tokens} tokens, {num_near_ties} near-ties")
        assert num_near_ties <= num_tokens * MAX_NEAR_TIE_SHARE


def _config(
    model_dir: Path, prompts: list[list[int]], block_size: int, mode: str, **how: Any
) -> EngineConfig:
    longest = -(-(max(map(len, prompts)) + NUM_NEW_TOKENS) // block_size)
    return EngineConfig(
        model_dir=model_dir,
        block_size=block_size,
        num_blocks=2 * longest if mode == "preemption" else 2048 // block_size,
        prefix_cache=mode != "plain",
        num_threads=2,
        **how,
    )


def _run(config: EngineConfig, prompts: list[list[int]], chunk_size: int) -> Trace:
    return run_batch(Engine.load(config), prompts, NUM_NEW_TOKENS, chunk_size, stagger_steps=1)


def _near_ties(oracle: Oracle, index: int, output: list[int]) -> int:
    """0 or 1: after the first difference there is nothing to compare."""
    assert len(output) == NUM_NEW_TOKENS
    for place, (found, expected) in enumerate(zip(output, oracle.outputs[index], strict=True)):
        if found != expected:
            gap = oracle.gaps[index][place]
            assert gap < NEAR_TIE_LOGIT_GAP, (
                f"prompt {index}, output token {place}: {found} for {expected}, gap {gap:.2g}"
            )
            return 1
    return 0
