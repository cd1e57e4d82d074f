"""Weights in the order in which the product reads them: panels of columns, row after row.

Knows the memory layout that kernels.c expects, nothing of models.

N outputs, K inputs, P panels, C columns of a panel (twice the lanes), G groups of inputs.
"""

from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor
from torch.nn import functional

from worker_service.engine.large_pages import map_zeros

GROUP = 64  # inputs that share a scale, in int8
SLAB_BYTES = 64 << 20  # taken from the system at a time


class WeightKind(Enum):
    """How weights are kept; sums are float32 in any case."""

    FLOAT32 = 0
    BFLOAT16 = 1
    INT8 = 2  # symmetric, a scale for every 64 inputs of an output


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWeight:
    """A matrix [columns, inner]. Gated: gate and up side by side, counted both in `columns`."""

    panels: Tensor  # uint8, as kernels.c reads them
    bias: Tensor | None  # float32 [P * C], in the panels' order
    inner: int
    columns: int
    kind: WeightKind
    is_gated: bool = False

    @property
    def num_outputs(self) -> int:
        """Of a product, a row."""
        return self.columns // 2 if self.is_gated else self.columns


class WeightMemory:
    """Hands out memory of large pages: reading a weight once a step is a quarter faster from them.

    What it hands out lives as long as the tensors made of it.
    """

    def __init__(self) -> None:
        self._slab = torch.empty(0, dtype=torch.uint8)

    def keep(self, tensor: Tensor) -> Tensor:
        """A copy, flat and as bytes."""
        flat = tensor.contiguous().view(-1).view(torch.uint8)
        size = -(-len(flat) // 64) * 64  # whole cache lines
        if len(self._slab) < size:
            self._slab = map_zeros(max(size, SLAB_BYTES))
        taken, self._slab = self._slab[: len(flat)], self._slab[size:]
        return taken.copy_(flat)


def pack(
    weight_NK: Tensor,
    bias_N: Tensor | None,
    lanes: int,
    memory: WeightMemory,
    kind: WeightKind = WeightKind.FLOAT32,
) -> PackedWeight:
    columns, inner = weight_NK.shape
    padding = -columns % (2 * lanes)
    padded = functional.pad(weight_NK.detach().float(), (0, 0, 0, padding))
    weight_PCK = padded.view(-1, 2 * lanes, inner)
    return PackedWeight(
        panels=memory.keep(_LAYOUTS[kind](weight_PCK)),
        bias=None if bias_N is None else functional.pad(bias_N.detach().float(), (0, padding)),
        inner=inner,
        columns=columns,
        kind=kind,
    )


def interleave(gate_N: Tensor, up_N: Tensor, lanes: int) -> Tensor:
    """Outputs (rows of weights, or biases) by turns: `lanes` of the gate, the same of up."""
    assert gate_N.shape == up_N.shape
    padding = (*(0, 0) * (gate_N.ndim - 1), 0, -len(gate_N) % lanes)
    groups = [
        functional.pad(part.detach(), padding).view(-1, lanes, *part.shape[1:])
        for part in (gate_N, up_N)
    ]
    return torch.stack(groups, 1).flatten(0, 2)


def _float32(weight_PCK: Tensor) -> Tensor:
    return weight_PCK.transpose(1, 2)


def _bfloat16(weight_PCK: Tensor) -> Tensor:
    return weight_PCK.transpose(1, 2).to(torch.bfloat16)


def _int8(weight_PCK: Tensor) -> Tensor:
    """Of every group its scales, then its rows, four to a word; [P, G, bytes]."""
    num_panels, num_columns, inner = weight_PCK.shape
    padded = functional.pad(weight_PCK, (0, -inner % GROUP))
    weight_PCGK = padded.view(num_panels, num_columns, -1, GROUP)
    scale_PCG1 = weight_PCGK.abs().amax(-1, keepdim=True) / 127
    divisor = torch.where(scale_PCG1 > 0, scale_PCG1, 1.0)
    rounded = (weight_PCGK / divisor).round().clamp(-127, 127).to(torch.int8)
    scales_PGC = scale_PCG1.squeeze(-1).transpose(1, 2).contiguous()
    # C before the 4 of a word
    words_PGKC4 = rounded.view(num_panels, num_columns, -1, GROUP // 4, 4).permute(0, 2, 3, 1, 4)
    rows = words_PGKC4.contiguous().flatten(2).view(torch.uint8)
    return torch.cat((scales_PGC.view(torch.uint8), rows), -1)


_LAYOUTS = {
    WeightKind.FLOAT32: _float32,
    WeightKind.BFLOAT16: _bfloat16,
    WeightKind.INT8: _int8,
}
