"""The weights of a Llama-shaped network, taken out of it piece by piece.

What is taken is gone from the network at once; whoever packs it piece by piece never has the model
in memory twice. Knows nothing of packing or of steps.

E model width, H query heads, K key/value heads, D head width, F width of the gated MLP, V vocabulary,
P positions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenLayer:
    attention_norm_E: Tensor
    qkv_OE: Tensor  # O = (H + 2 K) * D: queries, then keys, then values
    qkv_bias_O: Tensor | None
    query_norm_D: Tensor | None
    key_norm_D: Tensor | None
    out_EO: Tensor  # O = H * D
    mlp_norm_E: Tensor
    gate_FE: Tensor
    up_FE: Tensor
    down_EF: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenEnds:
    """What comes before and after the layers."""

    embedding_VE: Tensor
    final_norm_E: Tensor
    head_VE: Tensor  # the embedding itself where the two are tied
    rotary: "Rotary"


class Rotary:
    """Cosines and sines of positions, by transformers' own module: its frequencies and scaling."""

    def __init__(self, module: Any, dtype: torch.dtype) -> None:
        self._module = module
        self._like = torch.empty(0, dtype=dtype)  # says in which number format

    def __call__(self, position_P: Tensor) -> tuple[Tensor, Tensor]:
        """cos_PX and sin_PX for X = D / 2 pairs: the modules' second half repeats the first."""
        cos_1PD, sin_1PD = self._module(self._like, position_P.unsqueeze(0))
        half = cos_1PD.shape[-1] // 2
        return cos_1PD[0, :, :half], sin_1PD[0, :, :half]


def take_layers(network: Any) -> Iterator[TakenLayer]:
    for layer in network.model.layers:
        with torch.inference_mode():
            taken = _take_layer(layer)
        yield taken


def take_ends(network: Any) -> TakenEnds:
    inner = network.model
    embedding_VE = _take(inner.embed_tokens, "weight")
    return TakenEnds(
        embedding_VE=embedding_VE,
        final_norm_E=_take(inner.norm, "weight"),
        head_VE=_take(network.lm_head, "weight"),
        rotary=Rotary(inner.rotary_emb, embedding_VE.dtype),
    )


def _take_layer(layer: Any) -> TakenLayer:
    attention, mlp = layer.self_attn, layer.mlp
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    has_bias, has_norms = attention.q_proj.bias is not None, hasattr(attention, "q_norm")
    return TakenLayer(
        attention_norm_E=_take(layer.input_layernorm, "weight"),
        qkv_OE=torch.cat([_take(part, "weight") for part in projections]),
        qkv_bias_O=torch.cat([_take(part, "bias") for part in projections]) if has_bias else None,
        query_norm_D=_take(attention.q_norm, "weight") if has_norms else None,
        key_norm_D=_take(attention.k_norm, "weight") if has_norms else None,
        out_EO=_take(attention.o_proj, "weight"),
        mlp_norm_E=_take(layer.post_attention_layernorm, "weight"),
        gate_FE=_take(mlp.gate_proj, "weight"),
        up_FE=_take(mlp.up_proj, "weight"),
        down_EF=_take(mlp.down_proj, "weight"),
    )


def _take(module: Any, name: str) -> Tensor:
    weight: Tensor = getattr(module, name).detach()
    setattr(module, name, None)
    return weight
