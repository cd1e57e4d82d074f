"""The kernels as functions of torch tensors.

All tensors are on the CPU; rows are contiguous (the last stride is 1), so a row may be a slice of a
wider buffer where a stride is said to be free. A tensor of the wrong type or shape is our mistake:
an assertion. Nothing is allocated but what a function returns.

Every output element is summed in an order that depends on its own row alone. So a result has the
same bits with any number of threads, alone or in a batch, in chunks or token by token.
NaN and infinity of the inputs come through to the outputs they take part in.

T tokens, B sequences, H query heads, K key/value heads, D head width, N blocks, S block size,
M longest block table, E model width, I width of the gated layer, V vocabulary, R rows, P positions.
"""

import ctypes
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from worker_service.engine.attention.reference import AttentionOptions
from worker_service.engine.kernels import structures
from worker_service.engine.kernels.build import load_library
from worker_service.engine.kernels.packing import (
    PackedWeight,
    WeightKind,
    WeightMemory,
    interleave,
    pack,
)
from worker_service.engine.kernels.shared_keys import NO_UNITS, SharedUnits

_STORE, _ADD, _GATED = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTables:
    """Which tokens of a step belong to which sequence, and where its keys and values lie."""

    block_table_BM: Tensor  # int32; only blocks of [0, start + count) are read
    first_B: Tensor  # int32, the sequence's first token in the step
    count_B: Tensor  # int32, its tokens in the step, at least 1
    start_B: Tensor  # int32, position of the first of them in its sequence
    units: SharedUnits = NO_UNITS  # decodes with common keys; the result is the same without

    def __post_init__(self) -> None:
        num_sequences = len(self.block_table_BM)
        for tensor in (self.first_B, self.count_B, self.start_B):
            assert tensor.shape == (num_sequences,)
            _check(tensor, torch.int32)
        _check(self.block_table_BM, torch.int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class RotaryTables:
    """Cosine and sine of the half rotation, [P, D / 2] float32, and each token's row of them."""

    cosine: Tensor
    sine: Tensor
    position_T: Tensor  # int64

    def __post_init__(self) -> None:
        assert self.cosine.shape == self.sine.shape
        for tensor, dtype in (
            (self.cosine, torch.float32),
            (self.sine, torch.float32),
            (self.position_T, torch.int64),
        ):
            _check(tensor, dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadNorms:
    """RMS norm over each head of queries and keys before the rotation (Qwen3)."""

    query_D: Tensor
    key_D: Tensor
    epsilon: float


class Kernels:
    """The loaded library, and with how many threads it computes."""

    def __init__(self, library: ctypes.CDLL, num_threads: int) -> None:
        self._library = library
        self._memory = WeightMemory()
        self.num_threads = num_threads
        self.lanes: int = library.tk_lanes()

    @classmethod
    def load(cls, num_threads: int = 0, cache_dir: Path | None = None) -> "Kernels | None":
        """None where there is no compiler (the log says why). 0 threads = as many as torch has."""
        library = load_library(cache_dir)
        if library is None:
            return None
        return cls(library, num_threads or torch.get_num_threads())

    def pack(
        self,
        weight_NK: Tensor,
        bias_N: Tensor | None = None,
        kind: WeightKind = WeightKind.FLOAT32,
    ) -> PackedWeight:
        """A copy of a weight [outputs, inputs], of any float type, in the product's order."""
        return pack(weight_NK, bias_N, self.lanes, self._memory, kind)

    def pack_gated(
        self,
        gate_IK: Tensor,
        up_IK: Tensor,
        gate_I: Tensor | None = None,
        up_I: Tensor | None = None,
        kind: WeightKind = WeightKind.FLOAT32,
    ) -> PackedWeight:
        """Gate and up projections as one weight, whose product is silu(gate) * up, [T, I]."""
        bias = None if gate_I is None or up_I is None else interleave(gate_I, up_I, self.lanes)
        packed = self.pack(interleave(gate_IK, up_IK, self.lanes), bias, kind)
        return replace(packed, columns=2 * len(gate_IK), is_gated=True)

    def product(self, x_TK: Tensor, weight: PackedWeight, out_TN: Tensor) -> None:
        """out = x W^T + bias, or silu(gate) * up of a gated weight. Row strides are free.

        float32; out is [T, weight.num_outputs] and must not overlap x.
        """
        self._product(x_TK, weight, out_TN, _GATED if weight.is_gated else _STORE)

    def add_product(self, x_TK: Tensor, weight: PackedWeight, out_TN: Tensor) -> None:
        """out += x W^T + bias."""
        assert not weight.is_gated
        self._product(x_TK, weight, out_TN, _ADD)

    def attention(
        self,
        query_THD: Tensor,
        keys_NSKD: Tensor,
        values_NSKD: Tensor,
        tables: StepTables,
        options: AttentionOptions,
        out_THD: Tensor,
    ) -> None:
        """Each token attends to its own sequence up to itself; its keys and values are in the cache.

        float32. The token strides of query and out are free; D is a multiple of 8, at most 256, and
        equal for keys and values. Keys are read in place; slots beyond the context never.
        """
        block_size, num_kv_heads, width = keys_NSKD.shape[1:]
        num_heads = query_THD.shape[1]
        assert keys_NSKD.shape == values_NSKD.shape
        assert query_THD.shape == out_THD.shape and query_THD.shape[2] == width
        assert width % 8 == 0 and 8 <= width <= 256 and num_heads % num_kv_heads == 0
        for tensor in (query_THD, out_THD):
            assert tensor.dtype == torch.float32 and tensor.stride()[1:] == (width, 1)
        for tensor in (keys_NSKD, values_NSKD):
            _check(tensor, torch.float32)
        job = structures.Attention(
            query_THD.data_ptr(),
            keys_NSKD.data_ptr(),
            values_NSKD.data_ptr(),
            out_THD.data_ptr(),
            tables.block_table_BM.data_ptr(),
            tables.first_B.data_ptr(),
            tables.count_B.data_ptr(),
            tables.start_B.data_ptr(),
            *tables.units.addresses(),
            len(tables.units),
            query_THD.stride(0),
            out_THD.stride(0),
            tables.block_table_BM.stride(0),
            len(tables.block_table_BM),
            num_heads,
            num_kv_heads,
            width,
            block_size,
            options.window or 0,
            options.scaling,
            options.softcap or 0.0,
        )
        self._library.tk_attention(ctypes.byref(job), self.num_threads)

    def norm(
        self,
        x_TE: Tensor,
        weight_E: Tensor,
        out_TE: Tensor,
        *,
        epsilon: float,
        added_TE: Tensor | None = None,
    ) -> None:
        """RMS norm; x += added first. All float32 and contiguous; out may be x."""
        rows, width = x_TE.shape
        assert weight_E.shape == (width,) and out_TE.shape == x_TE.shape
        for tensor in (x_TE, weight_E, out_TE):
            _check(tensor, torch.float32)
        if added_TE is not None:
            assert added_TE.shape == x_TE.shape
            _check(added_TE, torch.float32)
        job = structures.Norm(
            x_TE.data_ptr(),
            _address(added_TE),
            weight_E.data_ptr(),
            out_TE.data_ptr(),
            rows,
            width,
            epsilon,
        )
        self._library.tk_norm(ctypes.byref(job), self.num_threads)

    def rotate_and_write(
        self,
        qkv_TC: Tensor,
        keys_NSKD: Tensor,
        values_NSKD: Tensor,
        slot_T: Tensor,
        tables: RotaryTables,
        norms: HeadNorms | None = None,
    ) -> None:
        """Rotate the queries in place; write rotated keys, and values, to their slots.

        qkv is [T, (H + 2 K) D] float32, its token stride free; slot_T int64. With norms, the part of
        qkv that holds keys is overwritten too.
        """
        num_kv_heads, width = keys_NSKD.shape[2:]
        num_heads = qkv_TC.shape[1] // width - 2 * num_kv_heads
        rows = len(qkv_TC)
        assert qkv_TC.dtype == torch.float32 and qkv_TC.stride(1) == 1 and num_heads > 0
        assert keys_NSKD.shape == values_NSKD.shape and tables.cosine.shape[1] * 2 == width
        assert slot_T.shape == tables.position_T.shape == (rows,)
        _check(slot_T, torch.int64)
        for tensor in (keys_NSKD, values_NSKD):
            _check(tensor, torch.float32)
        job = structures.Rotary(
            qkv_TC.data_ptr(),
            keys_NSKD.data_ptr(),
            values_NSKD.data_ptr(),
            tables.cosine.data_ptr(),
            tables.sine.data_ptr(),
            tables.position_T.data_ptr(),
            slot_T.data_ptr(),
            _address(norms.query_D if norms else None),
            _address(norms.key_D if norms else None),
            rows,
            num_heads,
            num_kv_heads,
            width,
            qkv_TC.stride(0),
            norms.epsilon if norms else 0.0,
        )
        self._library.tk_rotary(ctypes.byref(job), self.num_threads)

    def highest(self, rows_RV: Tensor) -> tuple[Tensor, Tensor]:
        """Of each row the lowest index of the highest value (int64; NaN is never it; 0 if all
        are), and whether all is finite (bool). float32, contiguous."""
        _check(rows_RV, torch.float32)
        rows, width = rows_RV.shape
        index_R = torch.empty(rows, dtype=torch.int64)
        is_finite_R = torch.empty(rows, dtype=torch.bool)
        job = structures.Highest(
            rows_RV.data_ptr(), index_R.data_ptr(), is_finite_R.data_ptr(), rows, width
        )
        self._library.tk_highest(ctypes.byref(job), self.num_threads)
        return index_R, is_finite_R

    def forward(self, model: structures.Model, step: structures.Step) -> None:
        """A whole pass; `forward.py` fills the blocks."""
        self._library.tk_forward(ctypes.byref(model), ctypes.byref(step), self.num_threads)

    def _product(self, x_TK: Tensor, weight: PackedWeight, out_TN: Tensor, epilogue: int) -> None:
        rows = len(x_TK)
        assert x_TK.shape[1] == weight.inner and out_TN.shape == (rows, weight.num_outputs)
        for tensor in (x_TK, out_TN):
            assert tensor.dtype == torch.float32 and tensor.stride(1) == 1
        job = structures.Product(
            x_TK.data_ptr(),
            weight.panels.data_ptr(),
            _address(weight.bias),
            out_TN.data_ptr(),
            x_TK.stride(0),
            out_TN.stride(0),
            rows,
            weight.inner,
            weight.columns,
            epilogue,
            weight.kind.value,
        )
        self._library.tk_product(ctypes.byref(job), self.num_threads)


def _check(tensor: Tensor, dtype: torch.dtype) -> None:
    assert tensor.dtype == dtype and tensor.is_contiguous() and tensor.device.type == "cpu"


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
