"""Fingerprints of a prompt's beginnings, short enough to stand in every queue entry.

They say which requests begin alike, so that a plan need not give tokens to what the worker's prefix cache
will bring. Only estimates rest on them: what is cached is the worker's to say.
"""

import hashlib
import sys
from array import array
from collections.abc import Callable, Sequence

from shared.types import TokenIds

_BLOCK = 16
_NUM_OCTAVES = 9
# Four to an octave: 16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, ... 14,336 tokens.
PREFIX_LENGTHS = tuple(_BLOCK * step for step in (1, 2, 3)) + tuple(
    _BLOCK * (4 + quarter) * 2**octave for octave in range(_NUM_OCTAVES) for quarter in range(4)
)


def prefix_hashes(prompt_ids: TokenIds, salt: bytes) -> tuple[int, ...]:
    """One 32-bit number for each of PREFIX_LENGTHS that is shorter than the prompt.

    The last token is always computed, so a whole prompt is never a cached prefix.
    """
    ids = array("I", prompt_ids[: PREFIX_LENGTHS[-1]])
    if sys.byteorder != "little":
        ids.byteswap()
    data = memoryview(ids).cast("B")
    state = hashlib.blake2b(len(salt).to_bytes(4, "little") + salt, digest_size=4)
    hashes: list[int] = []
    start = 0
    for length in PREFIX_LENGTHS:
        if length >= len(prompt_ids):
            break
        state.update(data[start * 4 : length * 4])
        start = length
        hashes.append(int.from_bytes(state.copy().digest(), "little"))
    return tuple(hashes)


def longest_known(hashes: Sequence[int], is_known: Callable[[int], bool]) -> int:
    """Tokens of the longest beginning that is known. A known one has known beginnings."""
    low, high = 0, len(hashes)
    while low < high:
        middle = (low + high + 1) // 2
        if is_known(hashes[middle - 1]):
            low = middle
        else:
            high = middle - 1
    return PREFIX_LENGTHS[low - 1] if low else 0
