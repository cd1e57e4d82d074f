"""Blocks are free, held or parked; invariants checked after each operation."""

import random

from shared.types import BlockCounts
from worker_service.engine.block_allocator import BlockAllocator
from worker_service.engine.prefix_cache import ROOT, PrefixCache


def make_allocator(num_blocks: int = 4) -> tuple[BlockAllocator, PrefixCache]:
    cache = PrefixCache(1, "00" * 32)
    return BlockAllocator(num_blocks, cache), cache


def test_too_few_blocks_give_none_and_change_nothing() -> None:
    allocator, _ = make_allocator(num_blocks=3)
    held = allocator.allocate(2)
    assert held is not None

    assert allocator.allocate(2) is None
    allocator.check_invariants([held])
    assert allocator.counts() == BlockCounts(total=3, free=1, cached=0, held=2)


def test_a_shared_block_is_free_when_its_last_holder_leaves() -> None:
    allocator, _ = make_allocator()
    held = allocator.allocate(1)
    assert held is not None
    allocator.share(held)
    allocator.check_invariants([held, held])

    assert allocator.free(held) == []
    allocator.check_invariants([held])
    assert allocator.free(held) == held
    allocator.check_invariants([])


def test_a_child_is_evicted_before_its_parent_when_room_is_needed() -> None:
    allocator, cache = make_allocator(num_blocks=3)
    table = allocator.allocate(3)
    assert table is not None
    parent = ROOT
    for block_id, key in zip(table, cache.keys([1, 2, 3], b""), strict=True):
        cache.publish(block_id, key, parent)
        parent = key
    allocator.free(table)
    allocator.check_invariants([])
    assert allocator.counts() == BlockCounts(total=3, free=0, cached=3, held=0)

    fresh = allocator.allocate(2)

    assert fresh == [table[2], table[1]]
    allocator.check_invariants([fresh])
    assert allocator.counts() == BlockCounts(total=3, free=0, cached=1, held=2)


def test_distrusted_blocks_become_free_once_nobody_holds_them() -> None:
    allocator, cache = make_allocator(num_blocks=2)
    table = allocator.allocate(2)
    assert table is not None
    first, second = cache.keys([1, 2], b"")
    cache.publish(table[0], first, ROOT)
    cache.publish(table[1], second, first)
    allocator.free(table[1:])
    allocator.check_invariants([table[:1]])

    assert allocator.distrust(table[:1]) == table[1:]
    allocator.check_invariants([table[:1]])
    assert allocator.free(table[:1]) == table[:1]
    assert allocator.counts() == BlockCounts(total=2, free=2, cached=0, held=0)


def test_invariants_hold_through_random_use() -> None:
    rng = random.Random(0)
    allocator, cache = make_allocator(num_blocks=12)
    tables: list[list[int]] = []
    for _ in range(500):
        if tables and rng.random() < 0.45:
            allocator.free(tables.pop(rng.randrange(len(tables))))
        elif tables and rng.random() < 0.3:
            table = list(rng.choice(tables))
            allocator.share(table)
            tables.append(table)
        elif (table_or_none := allocator.allocate(rng.randint(1, 4))) is not None:
            tokens = [rng.randrange(1000) for _ in table_or_none]
            parent = ROOT
            for block_id, key in zip(table_or_none, cache.keys(tokens, b""), strict=True):
                cache.publish(block_id, key, parent)
                parent = key
            tables.append(table_or_none)
        allocator.check_invariants(tables)
