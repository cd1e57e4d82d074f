"""A whole forward pass of the Llama-shaped family in one call.

Norm, rotary with half rotation, grouped heads, gated MLP with silu: Llama, Mistral, Qwen2 (biases),
Qwen3 (norms of heads). From token ids to logits with no Python between the layers. What it is given
is packed weights, the cache's tensors and a step's indices; it knows nothing of where they come from.

T tokens, B sequences, R rows that sample, H query heads, K key/value heads, D head width, N blocks,
S block size, E model width, V vocabulary, P positions.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from worker_service.engine.kernels import structures
from worker_service.engine.kernels.kernels import Kernels, StepTables
from worker_service.engine.kernels.packing import PackedWeight
from worker_service.engine.kernels.shared_keys import max_members, share_units


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """All float32 and contiguous."""

    attention_norm_E: Tensor
    mlp_norm_E: Tensor
    query_norm_D: Tensor | None  # Qwen3: before the rotation
    key_norm_D: Tensor | None
    qkv: PackedWeight  # queries, keys, values: (H + 2 K) D outputs
    out: PackedWeight
    gate_up: PackedWeight  # gated
    down: PackedWeight
    window: int | None  # a query sees so many keys, its own included; None = all


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWeights:
    embedding_VE: Tensor  # float32, contiguous
    norm_E: Tensor
    head: PackedWeight
    layers: Sequence[LayerWeights]
    num_heads: int
    num_kv_heads: int
    width: int
    epsilon: float
    scaling: float
    softcap: float | None = None

    def __post_init__(self) -> None:
        assert self.width % 8 == 0 and self.width <= 256
        assert self.num_heads % self.num_kv_heads == 0
        tensors = [self.embedding_VE, self.norm_E]
        for layer in self.layers:
            assert layer.gate_up.is_gated and layer.down.inner == layer.gate_up.num_outputs
            assert layer.qkv.columns == (self.num_heads + 2 * self.num_kv_heads) * self.width
            tensors += [layer.attention_norm_E, layer.mlp_norm_E]
            tensors += [norm for norm in (layer.query_norm_D, layer.key_norm_D) if norm is not None]
        for tensor in tensors:
            assert tensor.dtype == torch.float32 and tensor.is_contiguous()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepIndices:
    """One step: tokens of a sequence lie together, in the order of their positions."""

    token_ids_T: Tensor  # int64
    position_T: Tensor  # int64, rows of cosine and sine
    slot_T: Tensor  # int64, block_id * block_size + offset: where keys and values go
    sample_token_R: Tensor  # int64, places in [0, T)
    cosine: Tensor  # [P, D / 2] float32, times what the model scales them with
    sine: Tensor
    tables: StepTables

    def __post_init__(self) -> None:
        assert self.cosine.shape == self.sine.shape
        for table in (self.cosine, self.sine):
            assert table.dtype == torch.float32 and table.is_contiguous()
        for tensor in (self.token_ids_T, self.position_T, self.slot_T, self.sample_token_R):
            assert tensor.dtype == torch.int64 and tensor.is_contiguous()
        assert self.token_ids_T.shape == self.position_T.shape == self.slot_T.shape
        assert len(self.sample_token_R) <= len(self.token_ids_T)


class LlamaForward:
    """A model's weights bound to a cache. Keeps the workspace between steps; one thread calls."""

    def __init__(
        self,
        kernels: Kernels,
        weights: ModelWeights,
        caches: Sequence[tuple[Tensor, Tensor]],  # keys_NSKD and values_NSKD of each layer, float32
    ) -> None:
        self._kernels = kernels
        self._weights = weights
        self._caches = tuple(caches)  # kept: the library has only their addresses
        self._layers = self._bind_layers()
        self._model = self._bind_model()
        self._workspace = torch.empty(0)  # float32
        self._max_members = max_members(kernels.lanes, weights.num_heads, weights.num_kv_heads)

    def forward(self, step: StepIndices) -> tuple[Tensor, Tensor]:
        """logits_RV float32, and is_finite_T (bool): whether the last layer came out as numbers.

        Afterwards the step's keys and values are in the cache.
        """
        self._check_ranges(step)
        assert step.cosine.shape[1] * 2 == self._weights.width
        num_tokens, num_samples = len(step.token_ids_T), len(step.sample_token_R)
        logits_RV = torch.empty(num_samples, self._weights.head.columns)  # float32
        is_finite_T = torch.empty(num_tokens, dtype=torch.bool)
        tables = step.tables
        units = share_units(
            tables.block_table_BM.numpy(),
            tables.count_B.numpy(),
            tables.start_B.numpy(),
            block_size=self._caches[0][0].shape[1],
            most=self._max_members,
        )
        block = structures.Step(
            step.token_ids_T.data_ptr(),
            step.position_T.data_ptr(),
            step.slot_T.data_ptr(),
            step.cosine.data_ptr(),
            step.sine.data_ptr(),
            tables.block_table_BM.data_ptr(),
            tables.first_B.data_ptr(),
            tables.count_B.data_ptr(),
            tables.start_B.data_ptr(),
            *units.addresses(),
            step.sample_token_R.data_ptr(),
            *self._make_room(num_tokens),
            logits_RV.data_ptr(),
            is_finite_T.data_ptr(),
            num_tokens,
            len(tables.block_table_BM),
            num_samples,
            len(units),
            tables.block_table_BM.stride(0),
        )
        self._kernels.forward(self._model, block)
        return logits_RV, is_finite_T

    def _check_ranges(self, step: StepIndices) -> None:
        """What the library would follow out of its arrays. Blocks are the caller's to get right."""
        num_blocks, block_size = self._caches[0][0].shape[:2]
        for index, end in (
            (step.token_ids_T, len(self._weights.embedding_VE)),
            (step.position_T, len(step.cosine)),
            (step.slot_T, num_blocks * block_size),
            (step.sample_token_R, len(step.token_ids_T)),
        ):
            if len(index):
                low, high = (int(bound) for bound in index.aminmax())
                assert low >= 0 and high < end, f"[{low}, {high}] is not within [0, {end})"

    def _make_room(self, num_tokens: int) -> list[int]:
        """Addresses of x, normed, qkv, attended and gated, for so many tokens."""
        weights, layer = self._weights, self._weights.layers[0]
        model_width = weights.embedding_VE.shape[1]
        widths = (model_width, model_width, layer.qkv.columns, layer.out.inner, layer.down.inner)
        rounded = [-(-num_tokens * width // 16) * 16 for width in widths]  # whole cache lines
        if self._workspace.numel() < sum(rounded):
            self._workspace = torch.empty(sum(rounded))  # float32
        address = self._workspace.data_ptr()
        addresses = []
        for count in rounded:
            addresses.append(address)
            address += count * self._workspace.itemsize
        return addresses

    def _bind_layers(self) -> "ctypes.Array[structures.Layer]":
        layers = (structures.Layer * len(self._weights.layers))()
        for bound, layer, (keys, values) in zip(
            layers, self._weights.layers, self._caches, strict=True
        ):
            assert keys.shape == values.shape and keys.is_contiguous() and values.is_contiguous()
            assert keys.shape[2:] == (self._weights.num_kv_heads, self._weights.width)
            assert keys.dtype == values.dtype == torch.float32
            bound.attention_norm = layer.attention_norm_E.data_ptr()
            bound.mlp_norm = layer.mlp_norm_E.data_ptr()
            if layer.query_norm_D is not None and layer.key_norm_D is not None:
                bound.query_norm = layer.query_norm_D.data_ptr()
                bound.key_norm = layer.key_norm_D.data_ptr()
            bound.qkv, bound.out = _bind(layer.qkv), _bind(layer.out)
            bound.gate_up, bound.down = _bind(layer.gate_up), _bind(layer.down)
            bound.keys, bound.values = keys.data_ptr(), values.data_ptr()
            bound.window = layer.window or 0
        return layers

    def _bind_model(self) -> structures.Model:
        weights, (keys_NSKD, _) = self._weights, self._caches[0]
        return structures.Model(
            weights.embedding_VE.data_ptr(),
            weights.norm_E.data_ptr(),
            _bind(weights.head),
            self._layers,
            len(weights.layers),
            weights.embedding_VE.shape[1],
            weights.num_heads,
            weights.num_kv_heads,
            weights.width,
            weights.layers[0].down.inner,
            weights.head.columns,
            keys_NSKD.shape[1],
            weights.epsilon,
            weights.scaling,
            weights.softcap or 0.0,
        )


def _bind(weight: PackedWeight) -> structures.Weight:
    bias = None if weight.bias is None else weight.bias.data_ptr()
    return structures.Weight(weight.panels.data_ptr(), bias, weight.kind.value)
