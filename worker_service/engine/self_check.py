"""Does the paged, chunked forward give what the model gives by itself? Asked once, at load.

It catches what no list of supported models could: attention that needs more than queries, keys and
values (position biases, states carried from token to token), or a number format too small for it.
Knows nothing of requests.

T tokens, V vocabulary.
"""

import torch
from torch import Tensor

from shared.errors import ModelUnusable
from shared.types import Admission, Assignment, SamplingParams, StopRules
from worker_service.engine.batch_input import build_step_input
from worker_service.engine.kernels.packing import WeightKind
from worker_service.engine.kv_cache import KVCache
from worker_service.engine.model import StepModel
from worker_service.engine.model_folder import LoadedModel
from worker_service.engine.row import Row
from worker_service.engine.sequence import Sequence

CHUNKS = (9, 14, 1)  # of a model with fewer positions: fewer, the last one still by itself
BLOCK_SIZE = 8
_TOLERANCE = {torch.float32: 2e-3, torch.float16: 0.1, torch.bfloat16: 0.3}  # of the logits' spread

# Of weights kept in fewer bits: three times what SmolLM2-135M measures (0.03, 0.1).
_WEIGHT_TOLERANCE = {WeightKind.FLOAT32: 0.0, WeightKind.BFLOAT16: 0.1, WeightKind.INT8: 0.3}


def plain_logits(loaded: LoadedModel) -> Tensor:
    """Logits [V] after the check's tokens, by the model's own attention."""
    with torch.inference_mode():
        output = loaded.network(input_ids=_token_ids(loaded).unsqueeze(0), use_cache=False)
    logits_V: Tensor = output.logits[0, -1].float()
    if not logits_V.isfinite().all():
        raise ModelUnusable(
            f"{loaded.config.model_type} computes no finite logits in {loaded.dtype}"
        )
    return logits_V


def logits_error(model: StepModel, loaded: LoadedModel, expected_V: Tensor) -> float:
    """The largest difference, in chunks over the cache against the whole at once.

    Measured in standard deviations of the logits; NaN where the model computes no numbers.
    """
    found_V = _chunked_logits(model, loaded)
    spread = float(expected_V.std()) or 1.0
    return float((found_V - expected_V).abs().max()) / spread


def is_tolerable(error: float, dtype: torch.dtype, kind: WeightKind = WeightKind.FLOAT32) -> bool:
    """Rounded weights may cost what their format costs, and no more."""
    return error <= max(_TOLERANCE[dtype], _WEIGHT_TOLERANCE[kind])


def chunk_sizes(max_model_tokens: int) -> tuple[int, ...]:
    first, second, last = CHUNKS
    first = min(first, max_model_tokens - last)
    second = min(second, max_model_tokens - last - first)
    return tuple(size for size in (first, second, last) if size)


def _chunked_logits(model: StepModel, loaded: LoadedModel) -> Tensor:
    token_ids = _token_ids(loaded).tolist()
    cache = KVCache(model.layers, 4, BLOCK_SIZE, loaded.dtype, loaded.device)
    sequence = Sequence.admitted(
        Admission(
            request_id="self-check",
            assignment=Assignment(0, 0),
            handle=0,
            token_ids=tuple(token_ids),
            num_prompt_tokens=len(token_ids),
            sampling=SamplingParams(temperature=0),
            stop=StopRules(max_tokens=1),
        )
    )
    sequence.block_table = [2, 0, 3]
    for num_tokens in chunk_sizes(loaded.max_model_tokens):
        row = Row(sequence, num_tokens)
        step = build_step_input([row], BLOCK_SIZE, cache.null_block_id, loaded.device)
        logits_RV = model.forward(step, cache).logits_RV
        sequence.num_computed_tokens += num_tokens
    last_V: Tensor = logits_RV[-1].float()
    return last_V


def _token_ids(loaded: LoadedModel) -> Tensor:
    num_embeddings: int = loaded.network.get_input_embeddings().num_embeddings
    num_tokens = sum(chunk_sizes(loaded.max_model_tokens))
    return torch.arange(num_tokens, device=loaded.device) * 7 % (num_embeddings - 1)  # int64
