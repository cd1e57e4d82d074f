"""Who holds which block of the cache. Blocks of the prefix cache are given up when room is needed.

Knows nothing of sequences, tokens or tensors.
"""

from collections.abc import Iterable, Sequence

from shared.types import BlockCounts
from worker_service.engine.prefix_cache import PrefixCache


class BlockAllocator:
    """Every block is free, held (by one sequence or several), or parked in the prefix cache."""

    def __init__(self, num_blocks: int, prefix_cache: PrefixCache) -> None:
        self._num_blocks = num_blocks
        self._prefix_cache = prefix_cache
        self._free = list(range(num_blocks - 1, -1, -1))  # taken from the end
        self._num_holders = [0] * num_blocks

    def allocate(self, num_blocks: int) -> list[int] | None:
        """So many blocks for one holder, or None (and nothing changed) when there are too few."""
        if num_blocks > len(self._free) + self._prefix_cache.num_parked:
            return None
        return [self._take() for _ in range(num_blocks)]

    def share(self, block_ids: Iterable[int]) -> None:
        """One more holder for each of these held or parked blocks."""
        for block_id in block_ids:
            self._prefix_cache.unpark(block_id)
            self._num_holders[block_id] += 1

    def free(self, block_ids: Sequence[int]) -> list[int]:
        """One holder less. Published blocks nobody holds are parked; answers those now free.

        In token order, so that children are parked, and later evicted, before their parents.
        """
        freed = []
        for block_id in reversed(block_ids):
            assert self._num_holders[block_id] > 0, f"block {block_id} has no holder"
            self._num_holders[block_id] -= 1
            if self._num_holders[block_id]:
                continue
            if self._prefix_cache.is_published(block_id):
                self._prefix_cache.park(block_id)
            else:
                freed.append(block_id)
        self._free += freed
        return freed

    def distrust(self, block_ids: Iterable[int]) -> list[int]:
        """Take these, and all computed from them, out of the prefix cache; answers those freed."""
        freed = self._prefix_cache.forget(block_ids)
        self._free += freed
        return freed

    def counts(self) -> BlockCounts:
        free, cached = len(self._free), self._prefix_cache.num_parked
        return BlockCounts(
            total=self._num_blocks, free=free, cached=cached, held=self._num_blocks - free - cached
        )

    def check_invariants(self, tables: Iterable[Sequence[int]]) -> None:
        """Each block is in one state, and has as many holders as tables name it."""
        free, parked = set(self._free), set(self._prefix_cache.parked())
        held = {block_id for block_id, count in enumerate(self._num_holders) if count}
        assert len(free) == len(self._free), "a block is free twice"
        assert not free & parked and not free & held and not parked & held, (
            "a block is in two states"
        )
        assert len(free) + len(parked) + len(held) == self._num_blocks, "a block is lost"
        named = [0] * self._num_blocks
        for table in tables:
            for block_id in table:
                named[block_id] += 1
        assert named == self._num_holders, "holders and block tables disagree"

    def _take(self) -> int:
        if self._free:
            block_id = self._free.pop()
        else:
            evicted = self._prefix_cache.evict()
            assert evicted is not None, "counted as parked, yet not there"
            block_id = evicted
        self._num_holders[block_id] = 1
        return block_id
