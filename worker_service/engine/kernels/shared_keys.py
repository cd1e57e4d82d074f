"""Which decodes of a step have their first keys in common, so that these are read once for all of them.

Requests with the same beginning (a system prompt) hold the same blocks of the cache. Plain arithmetic on
block tables, once a step. Knows nothing of where blocks come from.

B sequences, U units.
"""

from dataclasses import dataclass

import numpy as np

KEY_BLOCK = 64  # kernels.c: keys between two corrections; a shared beginning is whole ones


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedUnits:
    """All sequences of a step; those of one unit share its first `shared` keys. int32."""

    order_B: np.ndarray
    first_U: np.ndarray  # into order
    count_U: np.ndarray
    shared_U: np.ndarray

    def __len__(self) -> int:
        return len(self.first_U)

    def addresses(self) -> tuple[int, ...]:
        arrays = (self.order_B, self.first_U, self.count_U, self.shared_U)
        return tuple(array.ctypes.data for array in arrays)


_EMPTY = np.empty(0, np.int32)
NO_UNITS = SharedUnits(order_B=_EMPTY, first_U=_EMPTY, count_U=_EMPTY, shared_U=_EMPTY)


def max_members(lanes: int, num_heads: int, num_kv_heads: int) -> int:
    """Decodes whose rows fit side by side into two vectors."""
    return 2 * lanes // (num_heads // num_kv_heads)


def share_units(
    table_BM: np.ndarray, count_B: np.ndarray, start_B: np.ndarray, *, block_size: int, most: int
) -> SharedUnits:
    """NO_UNITS where nobody shares enough. `most`: members of one unit."""
    first_B = table_BM[:, 0]
    if most < 2 or len(np.unique(first_B)) == len(first_B):
        return NO_UNITS
    is_decode_B = count_B == 1
    full_B = start_B // block_size  # blocks that are whole, whatever this step adds
    units: list[tuple[list[int], int]] = []
    by_first: dict[int, list[int]] = {}
    for sequence, (block, is_decode) in enumerate(
        zip(first_B.tolist(), is_decode_B.tolist(), strict=True)
    ):
        if is_decode:
            by_first.setdefault(block, []).append(sequence)
        else:
            units.append(([sequence], 0))
    for members in by_first.values():
        shared = _shared_keys(table_BM, full_B, members, block_size)
        size = most if shared else 1
        pieces = [members[at : at + size] for at in range(0, len(members), size)]
        units += [(piece, shared if len(piece) > 1 else 0) for piece in pieces]
    if not any(shared for _, shared in units):
        return NO_UNITS
    return _units(units)


def _shared_keys(
    table_BM: np.ndarray, full_B: np.ndarray, members: list[int], block_size: int
) -> int:
    """Whole KEY_BLOCKs of keys that all members have in the same blocks."""
    if len(members) < 2:
        return 0
    num_blocks = int(full_B[members].min())
    if not num_blocks:
        return 0
    tables = table_BM[members, :num_blocks]
    is_same = (tables == tables[0]).all(axis=0)
    num_shared = num_blocks if is_same.all() else int(is_same.argmin())
    return num_shared * block_size // KEY_BLOCK * KEY_BLOCK


def _units(units: list[tuple[list[int], int]]) -> SharedUnits:
    counts = [len(members) for members, _ in units]
    return SharedUnits(
        order_B=np.array([s for members, _ in units for s in members], np.int32),
        first_U=np.cumsum([0, *counts[:-1]], dtype=np.int32),
        count_U=np.array(counts, np.int32),
        shared_U=np.array([shared for _, shared in units], np.int32),
    )
