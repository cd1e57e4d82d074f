"""Matrix products with fixed weights, packed once.

Measured here (2 cores of a Zen 5 with AVX-512, SmolLM2-135M's shapes, float32, GFLOP/s, weights of
30 layers in turn):

    rows                              1      8     32     64    256    512
    functional.linear (MKL)         7-9  20-38 65-114 123-144 175-186 158-194
    oneDNN, prepacked (this file)  8-15 48-119 183-275 265-357 395-442 329-455

so oneDNN serves wherever torch carries it for the number format, and `functional.linear` elsewhere.
Knows nothing of models.

T rows, I input width, O output width.
"""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional


class Product(Protocol):
    """x times the transposed weight, plus the bias where there is one."""

    def __call__(self, x_TI: Tensor) -> Tensor:
        """[T, O], new."""

    def plus(self, x_TI: Tensor, other_TO: Tensor) -> Tensor:
        """The product plus `other_TO`, [T, O], new."""


def pack(weight_OI: Tensor, bias_O: Tensor | None) -> Product:
    """The fastest product for this weight. It keeps no reference to the weight it does not use."""
    if has_onednn(weight_OI):
        return OneDnnProduct(weight_OI, bias_O)
    return PlainProduct(weight_OI, bias_O)


def has_onednn(weight_OI: Tensor) -> bool:
    if weight_OI.device.type != "cpu" or not torch._C._has_mkldnn:
        return False
    if weight_OI.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight_OI.dtype == torch.float32


class PlainProduct:
    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        self._weight_OI = weight_OI
        self._bias_O = bias_O

    def __call__(self, x_TI: Tensor) -> Tensor:
        return functional.linear(x_TI, self._weight_OI, self._bias_O)

    def plus(self, x_TI: Tensor, other_TO: Tensor) -> Tensor:
        return functional.linear(x_TI, self._weight_OI, self._bias_O).add_(other_TO)


class OneDnnProduct:
    """What torch's compiler uses when it freezes a model: weights in the library's own layout."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight_OI, None)
        self._bias_O = bias_O

    def __call__(self, x_TI: Tensor) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            x_TI, self._packed, self._bias_O, "none", [], ""
        )
        return product

    def plus(self, x_TI: Tensor, other_TO: Tensor) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise.binary(
            x_TI, other_TO, self._packed, self._bias_O, "add"
        )
        return product
