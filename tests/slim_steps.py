"""Steps over several sequences, and what transformers says of them, for tests of slim forwards."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from shared.types import Admission, Assignment, SamplingParams, StopRules
from worker_service.engine.batch_input import build_step_input
from worker_service.engine.kv_cache import KVCache
from worker_service.engine.model import Output, StepModel
from worker_service.engine.model_folder import LoadedModel
from worker_service.engine.row import Row
from worker_service.engine.sequence import Sequence

BLOCK_SIZE = 8
LENGTHS = (61, 9, 33)
# tokens of each sequence in each step: whole, in chunks, token by token, mixed
STEPS = ((61, 4, 1), (0, 5, 1), (0, 0, 31))

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
SLIDING = {
    "use_sliding_window": True,
    "sliding_window": 12,
    "layer_types": ["sliding_attention", "full_attention"],
}
# every kind of member: family, changes to its config
MEMBERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("llama", {}),
    ("llama", {"tie_word_embeddings": True}),
    ("llama", {"hidden_size": 48, "num_attention_heads": 6, "head_dim": 24}),
    ("llama", {"rope_parameters": LLAMA3}),
    (
        "llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 2.0}},
    ),
    ("mistral", {}),
    ("qwen2", {}),
    ("qwen2", SLIDING),
    ("qwen3", {}),
    ("qwen3", SLIDING),
)


def token_ids(length: int) -> list[int]:
    return [(7 * place + length) % 200 for place in range(length)]


def expected_logits(loaded: LoadedModel) -> list[Tensor]:
    """Of each sequence's last token, by transformers, one sequence at a time."""
    with torch.inference_mode():
        return [
            loaded.network(input_ids=torch.tensor([token_ids(length)])).logits[0, -1].float()
            for length in LENGTHS
        ]


def run_steps(
    model: StepModel, dtype: torch.dtype, check: Callable[[Output], None]
) -> list[Tensor]:
    """The same logits, computed over scattered blocks in mixed steps."""
    cache = KVCache(model.layers, 40, BLOCK_SIZE, dtype, "cpu")
    sequences = [_sequence(length) for length in LENGTHS]
    for index, sequence in enumerate(sequences):
        sequence.block_table = [(11 * (8 * index + place)) % 40 for place in range(8)]
    found: dict[int, Tensor] = {}
    for sizes in STEPS:
        rows = [Row(sequences[index], size) for index, size in enumerate(sizes) if size]
        sampling = [
            index
            for index, size in enumerate(sizes)
            if size and size == sequences[index].num_pending_tokens
        ]
        step = build_step_input(rows, BLOCK_SIZE, cache.null_block_id, "cpu")
        output = model.forward(step, cache)
        check(output)
        for index, logits in zip(sampling, output.logits_RV, strict=True):
            found[index] = logits.float()
        for row in rows:
            row.sequence.num_computed_tokens += row.num_tokens
    return [found[index] for index in range(len(LENGTHS))]


def _sequence(length: int) -> Sequence:
    return Sequence.admitted(
        Admission(
            request_id="r",
            assignment=Assignment(1, 1),
            handle=length,
            token_ids=tuple(token_ids(length)),
            num_prompt_tokens=length,
            sampling=SamplingParams(temperature=0.0),
            stop=StopRules(max_tokens=1),
        )
    )
