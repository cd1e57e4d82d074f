"""The memory that holds keys and values: slots in blocks, for each layer.

Knows nothing of sequences or of who holds a block.

N blocks in the cache, S block size, K key/value heads, D head width, T tokens in the step,
B rows of a group, M blocks of the longest row.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from worker_service.engine.large_pages import map_zeros


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """What one layer keeps for a token. Keys and values may differ in width."""

    num_kv_heads: int
    key_width: int
    value_width: int


class LayerCache:
    """Keys and values of one layer."""

    def __init__(
        self, shape: LayerShape, num_blocks: int, block_size: int, dtype: torch.dtype, device: str
    ) -> None:
        heads = (num_blocks, block_size, shape.num_kv_heads)
        self.keys_NSKD = _zeros((*heads, shape.key_width), dtype, device)
        self.values_NSKD = _zeros((*heads, shape.value_width), dtype, device)

    def write(self, slot_T: Tensor, key_TKD: Tensor, value_TKD: Tensor) -> None:
        """Put each token's key and value into its slot."""
        # view, not reshape: it fails rather than write into a copy
        for cache_NSKD, new_TKD in ((self.keys_NSKD, key_TKD), (self.values_NSKD, value_TKD)):
            num_blocks, block_size, *heads = cache_NSKD.shape
            cache_NSKD.view(num_blocks * block_size, *heads).index_copy_(0, slot_T, new_TKD)

    def read(self, block_table_BM: Tensor) -> tuple[Tensor, Tensor]:
        """Copies of these blocks, token by token: keys_BLKD and values_BLKD with L = M * S."""
        return _gather(self.keys_NSKD, block_table_BM), _gather(self.values_NSKD, block_table_BM)


class KVCache:
    """All layers. One block more than `num_blocks` is the null block: what padding reads.

    Every slot holds finite numbers at all times but for those of rows that have just failed:
    padding and masked slots have weight zero, and zero times NaN would be NaN.
    """

    def __init__(
        self,
        shapes: Sequence[LayerShape],
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: str,
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.null_block_id = num_blocks
        self.layers = [
            LayerCache(shape, num_blocks + 1, block_size, dtype, device) for shape in shapes
        ]
        self.num_bytes = num_blocks * block_bytes(shapes, block_size, dtype)

    def zero(self, block_ids: Sequence[int]) -> None:
        """Make these blocks finite again."""
        if not block_ids:
            return
        for layer in self.layers:
            index_N = torch.tensor(block_ids, dtype=torch.int64, device=layer.keys_NSKD.device)
            layer.keys_NSKD.index_fill_(0, index_N, 0.0)
            layer.values_NSKD.index_fill_(0, index_N, 0.0)


def block_bytes(shapes: Sequence[LayerShape], block_size: int, dtype: torch.dtype) -> int:
    """Memory of one block over all layers."""
    widths = sum(s.num_kv_heads * (s.key_width + s.value_width) for s in shapes)
    return block_size * widths * dtype.itemsize


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> Tensor:
    if device != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    return map_zeros(math.prod(shape) * dtype.itemsize).view(dtype).view(shape)


def _gather(cache_NSKD: Tensor, block_table_BM: Tensor) -> Tensor:
    num_blocks, block_size, num_heads, width = cache_NSKD.shape
    num_rows, num_row_blocks = block_table_BM.shape
    # one long row a block: five times as fast on a CPU as an index over the four dimensions
    rows = cache_NSKD.view(num_blocks, -1).index_select(0, block_table_BM.flatten())
    return rows.view(num_rows, num_row_blocks * block_size, num_heads, width)
