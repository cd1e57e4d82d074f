"""Keys, finding, parking and evicting blocks by what they hold."""

from worker_service.engine.prefix_cache import ROOT, PrefixCache, block_key

FINGERPRINT = "ab" * 32


def make_cache(block_size: int = 4) -> PrefixCache:
    return PrefixCache(block_size, FINGERPRINT)


def test_only_full_blocks_have_keys() -> None:
    cache = make_cache(block_size=4)

    assert list(cache.keys([1, 2, 3], b"")) == []
    assert len(list(cache.keys(range(11), b""))) == 2


def test_a_key_depends_on_salt_parent_tokens_and_model() -> None:
    fingerprint = bytes.fromhex(FINGERPRINT)
    keys = {
        block_key(fingerprint, b"", ROOT, [1, 2]),
        block_key(fingerprint, b"salt", ROOT, [1, 2]),
        block_key(fingerprint, b"", b"p" * 32, [1, 2]),
        block_key(fingerprint, b"", ROOT, [2, 1]),
        block_key(b"other", b"", ROOT, [1, 2]),
    }

    assert len(keys) == 5


def test_keys_go_on_from_a_parent() -> None:
    cache = make_cache(block_size=2)
    whole = list(cache.keys([1, 2, 3, 4], b"s"))

    assert list(cache.keys([3, 4], b"s", parent=whole[0])) == whole[1:]


def test_the_older_of_two_equal_blocks_stays() -> None:
    cache = make_cache()
    (key,) = cache.keys([1, 2, 3, 4], b"")

    assert cache.publish(5, key, ROOT) == 5
    assert cache.publish(6, key, ROOT) == 5
    assert cache.is_published(5)
    assert not cache.is_published(6)


def test_the_least_recently_parked_is_evicted_first_and_found_no_more() -> None:
    cache = make_cache(block_size=1)
    first, second = cache.keys([1, 2], b"")
    cache.publish(0, first, ROOT)
    cache.publish(1, second, first)
    cache.park(1)
    cache.park(0)

    assert cache.evict() == 1
    assert cache.find(second) is None
    assert cache.find(first) == 0
    assert cache.evict() == 0
    assert cache.evict() is None


def test_a_block_used_again_is_no_more_parked() -> None:
    cache = make_cache(block_size=1)
    (key,) = cache.keys([1], b"")
    cache.publish(0, key, ROOT)
    cache.park(0)

    cache.unpark(0)

    assert cache.evict() is None
    assert cache.find(key) == 0


def test_forgetting_a_block_forgets_all_that_was_computed_from_it() -> None:
    cache = make_cache(block_size=1)
    keys = list(cache.keys([1, 2, 3], b""))
    for block_id, (key, parent) in enumerate(zip(keys, [ROOT, *keys], strict=False)):
        cache.publish(block_id, key, parent)
    cache.park(2)

    assert cache.forget([1]) == [2]
    assert cache.find(keys[0]) == 0
    assert cache.find(keys[1]) is None
    assert cache.find(keys[2]) is None
    assert cache.num_parked == 0
