"""Batched paged attention against the plain formula, one sequence and one head at a time."""

import pytest
import torch
from torch import Tensor

from shared.types import Admission, Assignment, SamplingParams, StopRules
from worker_service.engine.attention.reference import AttentionOptions, attend
from worker_service.engine.batch_input import build_step_input
from worker_service.engine.kv_cache import KVCache, LayerShape
from worker_service.engine.row import Row
from worker_service.engine.sequence import Sequence

NUM_HEADS, NUM_KV_HEADS, WIDTH, BLOCK_SIZE, NUM_BLOCKS = 4, 2, 8, 4, 200
# (tokens computed before, tokens in this step): decodes, chunks of like sizes, one of many tiles
ROWS = ((0, 5), (9, 1), (30, 1), (4, 7), (0, 16), (3, 300), (11, 2))


def make_rows() -> list[Row]:
    rows, next_block = [], NUM_BLOCKS
    for handle, (num_before, num_tokens) in enumerate(ROWS):
        admission = Admission(
            request_id="r",
            assignment=Assignment(1, 1),
            handle=handle,
            token_ids=tuple(range(num_before + num_tokens)),
            num_prompt_tokens=num_before + num_tokens,
            sampling=SamplingParams(),
            stop=StopRules(max_tokens=1),
        )
        sequence = Sequence.admitted(admission)
        sequence.num_computed_tokens = num_before
        num_blocks = -(-sequence.num_tokens // BLOCK_SIZE)
        sequence.block_table = list(range(next_block - num_blocks, next_block))
        next_block -= num_blocks
        rows.append(Row(sequence, num_tokens))
    return rows


def plain_attention(
    query_HD: Tensor, keys_LKD: Tensor, values_LKD: Tensor, options: AttentionOptions
) -> Tensor:
    """The last token's attention over all keys given."""
    first = max(0, len(keys_LKD) - options.window) if options.window else 0
    outputs = []
    for head, query_D in enumerate(query_HD):
        kv_head = head // (NUM_HEADS // NUM_KV_HEADS)
        scores = keys_LKD[first:, kv_head] @ query_D * options.scaling
        if options.softcap:
            scores = torch.tanh(scores / options.softcap) * options.softcap
        outputs.append(scores.softmax(-1) @ values_LKD[first:, kv_head])
    return torch.stack(outputs)


@pytest.mark.parametrize("window", [None, 6])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_each_token_attends_to_its_own_sequence_up_to_itself(
    window: int | None, softcap: float | None
) -> None:
    generator = torch.Generator().manual_seed(0)
    shape = LayerShape(num_kv_heads=NUM_KV_HEADS, key_width=WIDTH, value_width=WIDTH)
    cache = KVCache([shape], NUM_BLOCKS, BLOCK_SIZE, torch.float32, "cpu")
    (layer,) = cache.layers
    layer.keys_NSKD[:NUM_BLOCKS].normal_(generator=generator)
    layer.values_NSKD[:NUM_BLOCKS].normal_(generator=generator)
    layer.keys_NSKD[0] = layer.values_NSKD[0] = float("nan")  # a block that none of these holds
    rows = make_rows()
    step = build_step_input(rows, BLOCK_SIZE, cache.null_block_id, "cpu")
    query_THD = torch.randn(len(step.token_ids_T), NUM_HEADS, WIDTH, generator=generator)
    options = AttentionOptions(scaling=0.3, window=window, softcap=softcap)

    out_THD = attend(query_THD, layer, step.groups, options)

    keys, values = layer.keys_NSKD.flatten(0, 1), layer.values_NSKD.flatten(0, 1)
    for token in range(0, len(query_THD), 3):
        table = torch.tensor(rows[step.token_row[token]].sequence.block_table)
        places = torch.arange(int(step.position_T[token]) + 1)
        slots = table[places // BLOCK_SIZE] * BLOCK_SIZE + places % BLOCK_SIZE
        expected = plain_attention(query_THD[token], keys[slots], values[slots], options)
        torch.testing.assert_close(out_THD[token], expected, rtol=1e-4, atol=1e-5)
