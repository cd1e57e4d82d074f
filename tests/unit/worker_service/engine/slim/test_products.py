"""Packed products give what the plain one gives."""

import pytest
import torch
from torch.nn import functional

from worker_service.engine.slim.products import OneDnnProduct, PlainProduct, has_onednn, pack

CASES = [
    (kind, dtype)
    for kind in (PlainProduct, OneDnnProduct)
    for dtype in (torch.float32, torch.bfloat16)
    if kind is PlainProduct or has_onednn(torch.empty(0, dtype=dtype))
]


@pytest.mark.parametrize("num_rows", [1, 3, 64, 257])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize(("kind", "dtype"), CASES)
def test_a_packed_product_is_the_plain_one(
    kind: type[PlainProduct] | type[OneDnnProduct],
    dtype: torch.dtype,
    has_bias: bool,
    num_rows: int,
) -> None:
    generator = torch.Generator().manual_seed(num_rows)
    weight, x, other = (
        torch.randn(shape, generator=generator).to(dtype)
        for shape in ((40, 24), (num_rows, 24), (num_rows, 40))
    )
    bias = torch.randn(40, generator=generator).to(dtype) if has_bias else None
    product = kind(weight, bias)

    expected = functional.linear(x.float(), weight.float(), None if bias is None else bias.float())

    tolerance = 1e-5 if dtype == torch.float32 else 0.1
    for found, wanted in ((product(x), expected), (product.plus(x, other), expected + other)):
        assert found.dtype == dtype
        torch.testing.assert_close(found.float(), wanted.float(), rtol=tolerance, atol=tolerance)


def test_formats_that_onednn_does_not_take_are_multiplied_plainly() -> None:
    assert isinstance(pack(torch.zeros(4, 4, dtype=torch.float64), None), PlainProduct)
