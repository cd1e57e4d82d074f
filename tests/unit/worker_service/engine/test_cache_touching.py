"""Which memory is asked for before it is needed."""

import mmap

import torch

from worker_service.engine.cache_touching import PAGE_BYTES, SLICE_BYTES, slices, start_touching
from worker_service.engine.kv_cache import KVCache, LayerShape

BIG = 3 * SLICE_BYTES


def test_slices_go_through_all_arrays_in_turn_in_whole_pages() -> None:
    arrays = [(PAGE_BYTES * 10, BIG), (PAGE_BYTES * 10 + BIG + 100, BIG)]

    found = list(slices(arrays))

    assert [address for address, _ in found[:2]] == [PAGE_BYTES * 10, PAGE_BYTES * 11 + BIG]
    assert all(address % PAGE_BYTES == 0 == size % PAGE_BYTES for address, size in found)
    for address, size in arrays:
        inside = [(a, s) for a, s in found if address <= a and a + s <= address + size]
        assert sum(s for _, s in inside) >= size - 2 * PAGE_BYTES


def test_no_more_is_asked_for_than_may_be() -> None:
    found = list(slices([(0, 10 * SLICE_BYTES)], most=2 * SLICE_BYTES))

    assert found == [(0, SLICE_BYTES), (SLICE_BYTES, SLICE_BYTES)]


def test_what_is_in_the_cache_stays_as_it_is() -> None:
    shape = LayerShape(num_kv_heads=2, key_width=64, value_width=64)
    cache = KVCache([shape], 1024, 16, torch.float32, "cpu")
    cache.layers[0].keys_NSKD[5] = 3.0
    is_idle = iter([0.0, 1.0])

    thread = start_touching(cache, lambda: next(is_idle, 1.0))

    assert thread is not None
    thread.join(30)
    assert not thread.is_alive()
    assert cache.layers[0].keys_NSKD[5].eq(3.0).all()
    assert not cache.layers[0].keys_NSKD[6].any()


def test_a_small_cache_is_left_alone() -> None:
    shape = LayerShape(num_kv_heads=1, key_width=8, value_width=8)

    assert start_touching(KVCache([shape], 4, 16, torch.float32, "cpu"), lambda: 1.0) is None
    assert mmap.PAGESIZE % PAGE_BYTES == 0
