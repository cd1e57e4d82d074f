"""The slim forward in torch's operators: where there are no compiled kernels, or not for the format.

Norm, fused query/key/value product, rotary positions, attention, norm, gated MLP: what transformers'
Llama, Mistral, Qwen2 and Qwen3 compute, with fewer and larger operators. Knows nothing of sequences,
block ownership or sampling.

T tokens in the step, E model width, H query heads, K key/value heads, D head width, F width of the
gated MLP, R rows that sample, V vocabulary.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from worker_service.engine.attention.reference import AttentionOptions, attend
from worker_service.engine.batch_input import StepInput
from worker_service.engine.kv_cache import KVCache
from worker_service.engine.model import Output
from worker_service.engine.slim.products import Product, pack
from worker_service.engine.slim.shape import SlimShape
from worker_service.engine.slim.weights import Rotary, TakenLayer, take_ends, take_layers


class TorchSlimModel:
    """Takes the network's weights; does what PagedModel does, without transformers' modules."""

    path = "slim, torch's operators, reference attention"
    bytes_per_position = 0

    def __init__(self, shape: SlimShape, network: Any) -> None:
        self._shape = shape
        self.num_embeddings = shape.num_embeddings
        self.logits_width = shape.vocabulary
        self.layers = shape.layer_shapes()
        self._options = [
            AttentionOptions(scaling=shape.scaling, window=window) for window in shape.windows
        ]
        self._layers = [_PackedLayer.of(layer) for layer in take_layers(network)]
        ends = take_ends(network)
        self._embedding_VE = ends.embedding_VE
        self._final_norm_E = ends.final_norm_E
        self._head = pack(ends.head_VE, None)
        self._rotary = ends.rotary

    def forward(self, step: StepInput, cache: KVCache) -> Output:
        """Compute the step's tokens; their keys and values are in the cache afterwards."""
        with torch.inference_mode():
            hidden_TE = functional.embedding(step.token_ids_T, self._embedding_VE)
            angles = _Angles.of(self._rotary, step.position_T)
            for index, layer in enumerate(self._layers):
                normed_TE = self._norm(hidden_TE, layer.attention_norm_E)
                attended_TO = self._attend(index, normed_TE, angles, step, cache)
                hidden_TE = layer.out.plus(attended_TO, hidden_TE)
                hidden_TE = self._add_mlp(layer, hidden_TE)
            return Output(
                logits_RV=self._logits(hidden_TE[step.sample_token_R]),
                # NaN or infinity of any layer comes through to here
                is_finite_T=hidden_TE.sum(-1, dtype=torch.float32).isfinite(),
            )

    def _attend(
        self, index: int, normed_TE: Tensor, angles: "_Angles", step: StepInput, cache: KVCache
    ) -> Tensor:
        """[T, H * D]. Queries and keys lie side by side, so both are rotated at once."""
        shape, layer, layer_cache = self._shape, self._layers[index], cache.layers[index]
        num_rotated = shape.num_heads + shape.num_kv_heads
        qkv_TO = layer.qkv(normed_TE)
        qkv_THD = qkv_TO.view(len(qkv_TO), -1, shape.head_width)
        rotated_THD = angles.rotate(self._norm_heads(layer, qkv_THD[:, :num_rotated]))
        layer_cache.write(step.slot_T, rotated_THD[:, shape.num_heads :], qkv_THD[:, num_rotated:])
        query_THD = rotated_THD[:, : shape.num_heads]
        return attend(query_THD, layer_cache, step.groups, self._options[index]).flatten(1)

    def _norm_heads(self, layer: "_PackedLayer", heads_THD: Tensor) -> Tensor:
        """Qwen3's norm of each query and key head."""
        if layer.query_norm_D is None or layer.key_norm_D is None:
            return heads_THD
        query_THD = self._norm(heads_THD[:, : self._shape.num_heads], layer.query_norm_D)
        key_TKD = self._norm(heads_THD[:, self._shape.num_heads :], layer.key_norm_D)
        return torch.cat((query_THD, key_TKD), dim=1)

    def _add_mlp(self, layer: "_PackedLayer", hidden_TE: Tensor) -> Tensor:
        gate_up_T2F = layer.gate_up(self._norm(hidden_TE, layer.mlp_norm_E))
        gate_TF, up_TF = gate_up_T2F.chunk(2, dim=-1)
        return layer.down.plus(functional.silu(gate_TF).mul_(up_TF), hidden_TE)

    def _logits(self, last_RE: Tensor) -> Tensor:
        if not len(last_RE):
            return last_RE.new_empty(0, self.logits_width)
        return self._head(self._norm(last_RE, self._final_norm_E))

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(x, weight.shape, weight, self._shape.norm_epsilon)


@dataclass(frozen=True, slots=True)
class _Angles:
    cos_T1D: Tensor
    signed_sin_T1D: Tensor  # the first half negated

    @classmethod
    def of(cls, rotary: Rotary, position_T: Tensor) -> "_Angles":
        cos_TX, sin_TX = rotary(position_T)
        cos_TD, sin_TD = torch.cat((cos_TX, cos_TX), -1), torch.cat((-sin_TX, sin_TX), -1)
        return cls(cos_TD.unsqueeze(1), sin_TD.unsqueeze(1))

    def rotate(self, heads_THD: Tensor) -> Tensor:
        """First half times cosine minus second times sine; second times cosine plus first."""
        swapped_THD = heads_THD.roll(heads_THD.shape[-1] // 2, -1)
        return torch.addcmul(heads_THD * self.cos_T1D, swapped_THD, self.signed_sin_T1D)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PackedLayer:
    attention_norm_E: Tensor
    qkv: Product
    query_norm_D: Tensor | None
    key_norm_D: Tensor | None
    out: Product
    mlp_norm_E: Tensor
    gate_up: Product  # gate, then up
    down: Product

    @classmethod
    def of(cls, layer: TakenLayer) -> "_PackedLayer":
        return cls(
            attention_norm_E=layer.attention_norm_E,
            qkv=pack(layer.qkv_OE, layer.qkv_bias_O),
            query_norm_D=layer.query_norm_D,
            key_norm_D=layer.key_norm_D,
            out=pack(layer.out_EO, None),
            mlp_norm_E=layer.mlp_norm_E,
            gate_up=pack(torch.cat((layer.gate_FE, layer.up_FE)), None),
            down=pack(layer.down_EF, None),
        )
