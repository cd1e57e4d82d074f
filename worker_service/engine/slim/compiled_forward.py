"""The slim forward as one call into the compiled kernels. Float32 on the CPU.

Knows nothing of sequences, block ownership or sampling.

E model width, D head width.
"""

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from worker_service.engine.batch_input import StepInput
from worker_service.engine.kernels.forward import (
    LayerWeights,
    LlamaForward,
    ModelWeights,
    StepIndices,
)
from worker_service.engine.kernels.kernels import Kernels, StepTables
from worker_service.engine.kernels.packing import PackedWeight, WeightKind
from worker_service.engine.kv_cache import KVCache
from worker_service.engine.model import Output
from worker_service.engine.slim.rotary_table import RotaryTable
from worker_service.engine.slim.shape import SlimShape
from worker_service.engine.slim.weights import TakenEnds, TakenLayer, take_ends, take_layers

_HEAD_WIDTH_STEP, _MAX_HEAD_WIDTH = 8, 256  # what the kernels' attention takes


class CompiledSlimModel:
    """Takes the network's weights; does what PagedModel does, without torch between the layers."""

    path = "slim, compiled kernels"

    def __init__(
        self,
        shape: SlimShape,
        network: Any,
        kernels: Kernels,
        max_model_tokens: int,
        kind: WeightKind = WeightKind.FLOAT32,
    ) -> None:
        if kind is not WeightKind.FLOAT32:
            self.path = f"slim, compiled kernels, {kind.name.lower()} weights"
        self.num_embeddings = shape.num_embeddings
        self.logits_width = shape.vocabulary
        self.layers = shape.layer_shapes()
        self._kernels = kernels
        packer = _Packer(kernels, kind)
        layers = [
            _pack_layer(layer, window, packer)
            for layer, window in zip(take_layers(network), shape.windows, strict=True)
        ]
        ends = take_ends(network)
        self._weights = _pack(shape, layers, ends, packer)
        self._rotary = RotaryTable(ends.rotary, shape.head_width, max_model_tokens)
        self.bytes_per_position = self._rotary.bytes_per_position
        self._bound: tuple[weakref.ref[KVCache], LlamaForward] | None = None

    def forward(self, step: StepInput, cache: KVCache) -> Output:
        """Compute the step's tokens; their keys and values are in the cache afterwards."""
        spans = step.spans
        cosine_PX, sine_PX = self._rotary.up_to(int(step.position_T.max()) + 1)
        logits_RV, is_finite_T = self._bind(cache).forward(
            StepIndices(
                token_ids_T=step.token_ids_T,
                position_T=step.position_T,
                slot_T=step.slot_T,
                sample_token_R=step.sample_token_R,
                cosine=cosine_PX,
                sine=sine_PX,
                tables=StepTables(
                    block_table_BM=spans.block_table_BM,
                    first_B=spans.first_B,
                    count_B=spans.count_B,
                    start_B=spans.start_B,
                ),
            )
        )
        return Output(logits_RV=logits_RV, is_finite_T=is_finite_T)

    def _bind(self, cache: KVCache) -> LlamaForward:
        """The pass over this cache; its addresses are looked up once."""
        if self._bound is None or self._bound[0]() is not cache:
            memory = [(layer.keys_NSKD, layer.values_NSKD) for layer in cache.layers]
            bound = LlamaForward(self._kernels, self._weights, memory)
            self._bound = (weakref.ref(cache), bound)
        return self._bound[1]


def can_compile(shape: SlimShape, dtype: torch.dtype) -> bool:
    width = shape.head_width
    return dtype == torch.float32 and width % _HEAD_WIDTH_STEP == 0 and width <= _MAX_HEAD_WIDTH


@dataclass(frozen=True, slots=True)
class _Packer:
    kernels: Kernels
    kind: WeightKind

    def pack(self, weight_NK: Tensor, bias_N: Tensor | None = None) -> PackedWeight:
        return self.kernels.pack(weight_NK, bias_N, self.kind)

    def pack_gated(self, gate_IK: Tensor, up_IK: Tensor) -> PackedWeight:
        return self.kernels.pack_gated(gate_IK, up_IK, kind=self.kind)


def _pack(
    shape: SlimShape, layers: list[LayerWeights], ends: TakenEnds, packer: _Packer
) -> ModelWeights:
    return ModelWeights(
        embedding_VE=ends.embedding_VE.contiguous(),
        norm_E=ends.final_norm_E,
        head=packer.pack(ends.head_VE),
        layers=layers,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        width=shape.head_width,
        epsilon=shape.norm_epsilon,
        scaling=shape.scaling,
    )


def _pack_layer(layer: TakenLayer, window: int | None, packer: _Packer) -> LayerWeights:
    return LayerWeights(
        attention_norm_E=layer.attention_norm_E,
        mlp_norm_E=layer.mlp_norm_E,
        query_norm_D=layer.query_norm_D,
        key_norm_D=layer.key_norm_D,
        qkv=packer.pack(layer.qkv_OE, layer.qkv_bias_O),
        out=packer.pack(layer.out_EO),
        gate_up=packer.pack_gated(layer.gate_FE, layer.up_FE),
        down=packer.pack(layer.down_EF),
        window=window,
    )
