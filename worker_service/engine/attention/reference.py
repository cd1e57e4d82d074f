"""The readable attention: one batched, masked attention for each group of the step.

Knows nothing of models, sequences or block ownership.

T tokens in the step, B rows of a group, Q queries of its longest row, L keys of its longest row
(M blocks times S), H query heads, K key/value heads, G query heads for one of these, D head width.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from worker_service.engine.batch_input import AttentionGroup
from worker_service.engine.kv_cache import LayerCache


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionOptions:
    """What a layer asks of its attention."""

    scaling: float
    window: int | None = None  # a query sees so many keys, its own included; None = all
    softcap: float | None = None  # scores are squeezed into (-softcap, softcap)


def attend(
    query_THD: Tensor,
    layer: LayerCache,
    groups: Sequence[AttentionGroup],
    options: AttentionOptions,
) -> Tensor:
    """Each token attends to its own sequence up to itself."""
    outputs = [
        _attend_group(query_THD[group.first : group.last], layer, group, options)
        for group in groups
    ]
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _attend_group(
    query_THD: Tensor, layer: LayerCache, group: AttentionGroup, options: AttentionOptions
) -> Tensor:
    query_BHQD = _unflatten(query_THD, group).transpose(1, 2)
    keys_BLKD, values_BLKD = layer.read(group.block_table_BM)
    keys_BKLD, values_BKLD = keys_BLKD.transpose(1, 2), values_BLKD.transpose(1, 2)
    mask_B1QL = _mask(group, keys_BLKD.shape[1], options.window, query_THD.dtype)
    if options.softcap is None:
        out_BHQD = functional.scaled_dot_product_attention(
            query_BHQD,
            keys_BKLD,
            values_BKLD,
            attn_mask=mask_B1QL,
            scale=options.scaling,
            enable_gqa=query_BHQD.shape[1] != keys_BKLD.shape[1],
        )
    else:
        out_BHQD = _softcapped(query_BHQD, keys_BKLD, values_BKLD, mask_B1QL, options)
    return _flatten(out_BHQD.transpose(1, 2), group)


def _unflatten(query_THD: Tensor, group: AttentionGroup) -> Tensor:
    """Queries of a group row by row, [B, Q, H, D]; padding queries are zero."""
    num_rows, num_queries = group.position_BQ.shape
    _, num_heads, width = query_THD.shape
    if group.real_n is None:
        return query_THD.reshape(num_rows, num_queries, num_heads, width)
    padded = query_THD.new_zeros(num_rows * num_queries, num_heads, width)
    padded.index_copy_(0, group.real_n, query_THD)
    return padded.view(num_rows, num_queries, num_heads, width)


def _flatten(out_BQHD: Tensor, group: AttentionGroup) -> Tensor:
    """Token by token again, padding left out."""
    out_nHD = out_BQHD.flatten(0, 1)
    return out_nHD if group.real_n is None else out_nHD.index_select(0, group.real_n)


def _mask(group: AttentionGroup, num_keys: int, window: int | None, dtype: torch.dtype) -> Tensor:
    """Additive, [B, 1, Q, L]: 0 where a query sees a key, else -inf. Made once, for all layers."""
    mask = group.masks.get((window, dtype))
    if mask is None:
        position_BQ1 = group.position_BQ[:, :, None]
        key_L = torch.arange(num_keys, device=position_BQ1.device)  # int64
        unseen_BQL = key_L > position_BQ1
        if window is not None:
            unseen_BQL |= key_L <= position_BQ1 - window
        mask = torch.zeros(unseen_BQL.shape, dtype=dtype, device=unseen_BQL.device)
        mask = mask.masked_fill_(unseen_BQL, float("-inf")).unsqueeze(1)
        group.masks[window, dtype] = mask
    return mask


def _softcapped(
    query_BHQD: Tensor,
    keys_BKLD: Tensor,
    values_BKLD: Tensor,
    mask_B1QL: Tensor,
    options: AttentionOptions,
) -> Tensor:
    assert options.softcap is not None
    num_rows, num_heads, num_queries, width = query_BHQD.shape
    num_kv_heads = keys_BKLD.shape[1]
    query_BKGQD = query_BHQD.reshape(num_rows, num_kv_heads, -1, num_queries, width)
    scores = query_BKGQD @ keys_BKLD.unsqueeze(2).transpose(-1, -2) * options.scaling
    scores = torch.tanh(scores / options.softcap) * options.softcap
    weights = (scores + mask_B1QL.unsqueeze(2)).softmax(-1, dtype=torch.float32)
    out_BKGQD = weights.to(query_BHQD.dtype) @ values_BKLD.unsqueeze(2)
    return out_BKGQD.reshape(num_rows, num_heads, num_queries, -1)
