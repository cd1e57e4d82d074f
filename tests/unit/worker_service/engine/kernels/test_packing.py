"""Where weights lie."""

import torch

from worker_service.engine.kernels.packing import (
    SLAB_BYTES,
    WeightKind,
    WeightMemory,
    interleave,
    pack,
)


def test_panels_hold_columns_side_by_side_and_zeros_beyond_the_last() -> None:
    weight = torch.arange(15.0).view(5, 3)

    packed = pack(weight, torch.ones(5), lanes=4, memory=WeightMemory())

    panel = packed.panels.view(torch.float32).view(3, 8)
    assert torch.equal(panel[:, :5], weight.T) and not panel[:, 5:].any()
    assert packed.bias is not None and packed.bias.tolist() == [1] * 5 + [0] * 3
    assert (packed.inner, packed.columns, packed.num_outputs) == (3, 5, 5)


def test_gate_and_up_take_turns_by_lanes() -> None:
    gate, up = torch.arange(1.0, 7), torch.arange(11.0, 17)

    assert interleave(gate, up, 4).tolist() == [
        *(1, 2, 3, 4, 11, 12, 13, 14),
        *(5, 6, 0, 0, 15, 16, 0, 0),
    ]


def test_memory_handed_out_is_never_handed_out_again() -> None:
    memory = WeightMemory()
    tensors = [torch.full((size,), value) for value, size in enumerate((3, 1000, 17, SLAB_BYTES))]

    kept = [memory.keep(tensor.to(torch.int8)) for tensor in tensors]

    for value, tensor in enumerate(kept):
        assert (tensor == value).all() and tensor.data_ptr() % 64 == 0


def test_int8_takes_a_quarter_and_its_scales() -> None:
    memory = WeightMemory()
    sizes = {
        kind: pack(torch.randn(64, 128), None, 16, memory, kind).panels.numel()
        for kind in WeightKind
    }

    assert sizes[WeightKind.FLOAT32] == 64 * 128 * 4
    assert sizes[WeightKind.BFLOAT16] == 64 * 128 * 2
    assert sizes[WeightKind.INT8] == 64 * 128 + 64 * 2 * 4
