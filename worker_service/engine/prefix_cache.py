"""Which computed blocks hold which tokens, so that equal beginnings are computed once.

A full block is known by its key: SHA-256 over (model fingerprint, salt, parent's key, its tokens).
A block that no sequence holds is *parked*: kept until its room is needed, least recently used
first, a child before its parent. Knows nothing of sequences, tensors or reference counts.
"""

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

BlockKey = bytes
ROOT: BlockKey = b""


class PrefixCache:
    """Blocks by key. Which of them are parked is told by the allocator, who counts the holders."""

    def __init__(self, block_size: int, fingerprint: str) -> None:
        self._block_size = block_size
        self._fingerprint = bytes.fromhex(fingerprint)
        self._block_ids: dict[BlockKey, int] = {}
        self._keys: dict[int, BlockKey] = {}
        self._parents: dict[int, BlockKey] = {}
        self._parked: OrderedDict[int, None] = OrderedDict()  # next to be evicted first

    @property
    def num_parked(self) -> int:
        return len(self._parked)

    def keys(
        self, token_ids: Sequence[int], salt: bytes, parent: BlockKey = ROOT
    ) -> Iterator[BlockKey]:
        """Keys of the full blocks of these tokens, which follow the block of key `parent`."""
        size = self._block_size
        for first in range(0, len(token_ids) // size * size, size):
            parent = block_key(self._fingerprint, salt, parent, token_ids[first : first + size])
            yield parent

    def find(self, key: BlockKey) -> int | None:
        return self._block_ids.get(key)

    def is_published(self, block_id: int) -> bool:
        return block_id in self._keys

    def publish(self, block_id: int, key: BlockKey, parent: BlockKey) -> int:
        """Make a computed block findable. Answers the block of this key: an older one stays."""
        present = self._block_ids.setdefault(key, block_id)
        if present == block_id:
            self._keys[block_id] = key
            self._parents[block_id] = parent
        return present

    def park(self, block_id: int) -> None:
        """Its last holder is gone. Called for children before their parents."""
        self._parked[block_id] = None

    def unpark(self, block_id: int) -> None:
        """Somebody holds it again. Blocks that are not parked are left as they are."""
        self._parked.pop(block_id, None)

    def evict(self) -> int | None:
        """The parked block used longest ago, no more findable; None when nothing is parked."""
        if not self._parked:
            return None
        block_id, _ = self._parked.popitem(last=False)
        self._unpublish(block_id)
        return block_id

    def forget(self, block_ids: Iterable[int]) -> list[int]:
        """Unpublish these and all computed from them. Answers those that were parked."""
        were_parked = []
        doomed = [block_id for block_id in block_ids if block_id in self._keys]
        while doomed:
            keys = {self._unpublish(block_id) for block_id in doomed}
            were_parked += [block_id for block_id in doomed if block_id in self._parked]
            for block_id in doomed:
                self._parked.pop(block_id, None)
            doomed = [block_id for block_id, parent in self._parents.items() if parent in keys]
        return were_parked

    def parked(self) -> tuple[int, ...]:
        return tuple(self._parked)

    def _unpublish(self, block_id: int) -> BlockKey:
        key = self._keys.pop(block_id)
        del self._block_ids[key], self._parents[block_id]
        return key


def block_key(
    fingerprint: bytes, salt: bytes, parent: BlockKey, token_ids: Sequence[int]
) -> BlockKey:
    """Token ids enter as little-endian u32. Lengths keep the fields apart."""
    digest = hashlib.sha256(fingerprint)
    digest.update(len(salt).to_bytes(4, "little"))
    digest.update(salt)
    digest.update(len(parent).to_bytes(4, "little"))
    digest.update(parent)
    digest.update(u32_bytes(token_ids))
    return digest.digest()


def u32_bytes(token_ids: Sequence[int]) -> bytes:
    ids = array("I", token_ids)
    if ids.itemsize != 4 or array("H", [1]).tobytes() != b"\x01\x00":  # no machine of ours
        return b"".join(token_id.to_bytes(4, "little") for token_id in token_ids)
    return ids.tobytes()
