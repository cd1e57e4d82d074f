"""Decodes that share their first keys: found by their block tables, and computed the same together."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from worker_service.engine.kernels.kernels import AttentionOptions, Kernels, StepTables
from worker_service.engine.kernels.shared_keys import NO_UNITS, max_members, share_units

HEADS, KV_HEADS, WIDTH, BLOCK_SIZE = 6, 2, 64, 16
NUM_BLOCKS = 200


def make_tables(
    shared_blocks: list[int], own_blocks: list[int], counts: list[int]
) -> tuple[StepTables, int]:
    """Sequences: the first `shared_blocks` of one beginning, then blocks of their own."""
    table = np.full((len(counts), 40), 199, np.int32)
    free = iter(range(40, NUM_BLOCKS))
    start, first = [], [0]
    for row, (num_shared, num_own, count) in enumerate(
        zip(shared_blocks, own_blocks, counts, strict=True)
    ):
        table[row, :num_shared] = range(num_shared)
        table[row, num_shared : num_shared + num_own] = [next(free) for _ in range(num_own)]
        start.append((num_shared + num_own) * BLOCK_SIZE - count - row % 3)
        first.append(first[-1] + count)
    tables = StepTables(
        block_table_BM=torch.from_numpy(table),
        first_B=torch.tensor(first[:-1], dtype=torch.int32),
        count_B=torch.tensor(counts, dtype=torch.int32),
        start_B=torch.tensor(start, dtype=torch.int32),
    )
    return tables, first[-1]


def units_of(tables: StepTables, most: int = 10):
    return share_units(
        tables.block_table_BM.numpy(),
        tables.count_B.numpy(),
        tables.start_B.numpy(),
        block_size=BLOCK_SIZE,
        most=most,
    )


def as_lists(units) -> list[tuple[list[int], int]]:
    return [
        (units.order_B[first : first + count].tolist(), shared)
        for first, count, shared in zip(
            units.first_U.tolist(), units.count_U.tolist(), units.shared_U.tolist(), strict=True
        )
    ]


def test_decodes_with_the_same_first_blocks_are_one_unit() -> None:
    tables, _ = make_tables([20, 0, 20, 12], [2, 3, 4, 1], [1, 1, 1, 1])

    # 12 blocks are common to the three: 192 keys, whole blocks of 64
    assert as_lists(units_of(tables)) == [([0, 2, 3], 192), ([1], 0)]


def test_chunks_stay_alone_and_units_are_bounded() -> None:
    tables, _ = make_tables([8] * 6, [1] * 6, [1, 5, 1, 1, 1, 1])

    assert as_lists(units_of(tables, most=2)) == [([1], 0), ([0, 2], 128), ([3, 4], 128), ([5], 0)]


@pytest.mark.parametrize(
    ("shared", "own"), [([3, 3], [2, 2]), ([0, 0], [5, 5]), ([20], [1])], ids=["few", "none", "one"]
)
def test_too_little_in_common_is_nothing(shared: list[int], own: list[int]) -> None:
    tables, _ = make_tables(shared, own, [1] * len(shared))

    assert units_of(tables) is NO_UNITS


def test_every_sequence_is_in_one_unit() -> None:
    random = np.random.default_rng(0)
    for _ in range(50):
        num = int(random.integers(2, 12))
        shared = random.choice([0, 4, 9, 20], num).tolist()
        tables, _ = make_tables(
            shared, [1 + i % 3 for i in range(num)], random.choice([1, 1, 4], num).tolist()
        )
        units = units_of(tables, most=3)
        if units is not NO_UNITS:
            assert sorted(units.order_B.tolist()) == list(range(num))
            assert units.count_U.sum() == num


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("softcap", [None, 30.0])
def test_together_and_alone_are_the_same_bits(num_threads: int, softcap: float | None) -> None:
    kernels = Kernels.load(num_threads)
    if kernels is None:
        pytest.skip("no compiler")
    most = max_members(kernels.lanes, HEADS, KV_HEADS)
    torch.manual_seed(1)
    keys, values = (torch.randn(NUM_BLOCKS, BLOCK_SIZE, KV_HEADS, WIDTH) for _ in range(2))
    shared = [20, 0, 20, 12, 20, 20, 20, 20, 20, 20, 20, 20, 20, 16]
    tables, num_tokens = make_tables(shared, [1, 2] * 7, [1, 1, 1, 1, 7] + [1] * 9)
    query = torch.randn(num_tokens, HEADS, WIDTH)
    options = AttentionOptions(scaling=0.125, softcap=softcap)
    units = units_of(tables, most)
    assert max(units.count_U) > 1

    outputs = []
    for chosen in (NO_UNITS, units):
        out = torch.empty_like(query)
        kernels.attention(query, keys, values, replace(tables, units=chosen), options, out)
        outputs.append(out)

    assert torch.equal(*outputs)
