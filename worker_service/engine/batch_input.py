"""What one step computes, as index tensors that all layers share.

Rows of like size form a group, and attention runs once for a group: decodes together, chunks
together, long chunks cut into tiles so that masks stay small. Lists and numpy first, tensors last.
Knows nothing of models, sampling or block ownership.

T tokens in the step, B rows of a group, Q queries of its longest row, M blocks of its longest row,
R rows that sample.
"""

from collections import defaultdict
from collections.abc import Sequence as Many
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from shared.blocks import blocks_for
from worker_service.engine.row import Row

PADDING_POSITION = 0  # a padding query sees key 0 only, so that its softmax is finite
TILE_QUERIES = 256  # a long chunk attends in tiles of so many queries
FINE_CONTEXT = 512  # from here on a tile's context is bucketed by multiples, not by doubling


@dataclass(frozen=True, slots=True)
class Tile:
    """Queries [start, start + num_queries) of one row; it reads keys [0, start + num_queries)."""

    row: Row
    start: int
    num_queries: int

    @property
    def context(self) -> int:
        return self.start + self.num_queries


@dataclass(slots=True, kw_only=True)
class AttentionGroup:
    """Tiles computed in one batched attention: tokens [first, last) of the step."""

    first: int
    last: int
    block_table_BM: Tensor  # int64, padded with the null block
    position_BQ: Tensor  # int64, of each query in its sequence; PADDING_POSITION where none is
    real_n: Tensor | None  # int64, places in the flattened B*Q that are no padding; None: all are
    masks: dict[tuple[int | None, torch.dtype], Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSpans:
    """Where each tile's queries and keys lie: what a kernel over all of them reads. All int32.

    Tokens of a tile are [first, first + count) of the step.
    """

    block_table_BM: Tensor  # padded with the null block
    first_B: Tensor
    count_B: Tensor
    start_B: Tensor  # position of the first query in its sequence


@dataclass(frozen=True, kw_only=True)
class StepInput:
    """One step's tensors. Tokens lie in the order of groups; indices lead back to the rows.

    What attention needs beside is made when it is first asked for, by one form or the other.
    """

    token_ids_T: Tensor  # int64
    position_T: Tensor  # int64
    slot_T: Tensor  # int64, block_id * block_size + offset
    sample_token_R: Tensor  # int64, places in [0, T) of the tokens that sample, in order of rows
    token_row: np.ndarray  # T places: which row each token belongs to
    tile_groups: Many[Many[Tile]]
    block_size: int
    null_block_id: int

    @cached_property
    def groups(self) -> tuple[AttentionGroup, ...]:
        """For attention group by group."""
        built: list[AttentionGroup] = []
        for tiles in self.tile_groups:
            first = built[-1].last if built else 0
            table_BM = _block_table(tiles, self.block_size, self.null_block_id, np.int64)
            built.append(_build_group(tiles, first, table_BM, str(self.slot_T.device)))
        return tuple(built)

    @cached_property
    def spans(self) -> AttentionSpans:
        """For attention over all of them at once, on the CPU."""
        tiles = list(chain.from_iterable(self.tile_groups))
        count_B = np.array([tile.num_queries for tile in tiles], dtype=np.int32)
        table_BM = _block_table(tiles, self.block_size, self.null_block_id, np.int32)
        return AttentionSpans(
            block_table_BM=torch.from_numpy(table_BM),
            first_B=torch.from_numpy(np.cumsum(count_B, dtype=np.int32) - count_B),
            count_B=torch.from_numpy(count_B),
            start_B=torch.tensor([tile.start for tile in tiles], dtype=torch.int32),
        )


def build_step_input(
    rows: Many[Row], block_size: int, null_block_id: int, device: str
) -> StepInput:
    groups = _group_tiles(rows)
    tiles = list(chain.from_iterable(groups))
    row_index = {id(row): index for index, row in enumerate(rows)}
    token_ids = np.array(
        list(chain.from_iterable(t.row.sequence.token_ids[t.start : t.context] for t in tiles)),
        dtype=np.int64,
    )
    positions = np.concatenate([np.arange(t.start, t.context, dtype=np.int64) for t in tiles])
    sizes = [tile.num_queries for tile in tiles]
    token_row = np.repeat([row_index[id(tile.row)] for tile in tiles], sizes)
    return StepInput(
        token_ids_T=_tensor(token_ids, device),
        position_T=_tensor(positions, device),
        slot_T=_tensor(_slots(tiles, sizes, positions, block_size), device),
        sample_token_R=_tensor(_sampling_tokens(rows, tiles, sizes), device),
        token_row=token_row,
        tile_groups=groups,
        block_size=block_size,
        null_block_id=null_block_id,
    )


def _group_tiles(rows: Many[Row]) -> list[list[Tile]]:
    """Like-sized tiles together: a handful of groups, whose padding stays a small factor."""
    groups: dict[tuple[int, int], list[Tile]] = defaultdict(list)
    for row in rows:
        end = row.start + row.num_tokens
        for start in range(row.start, end, TILE_QUERIES):
            tile = Tile(row, start, min(TILE_QUERIES, end - start))
            groups[_bucket(tile)].append(tile)
    return list(groups.values())


def _bucket(tile: Tile) -> tuple[int, int]:
    """Queries up to a power of four, keys of two; with many queries keys to a multiple."""
    queries = 4 ** -(-(tile.num_queries - 1).bit_length() // 2)
    if queries >= TILE_QUERIES:
        return queries, -(-tile.context // FINE_CONTEXT)
    return queries, max(FINE_CONTEXT // 2, 1 << (tile.context - 1).bit_length())


def _slots(
    tiles: Many[Tile], sizes: Many[int], positions: np.ndarray, block_size: int
) -> np.ndarray:
    tables = [tile.row.sequence.block_table for tile in tiles]
    table_starts = np.cumsum([0, *(len(table) for table in tables[:-1])])
    flat_tables = np.array(list(chain.from_iterable(tables)), dtype=np.int64)
    blocks = flat_tables[np.repeat(table_starts, sizes) + positions // block_size]
    slots: np.ndarray = blocks * block_size + positions % block_size
    return slots


def _sampling_tokens(rows: Many[Row], tiles: Many[Tile], sizes: Many[int]) -> np.ndarray:
    """Where in the step the last token of each row that samples lies."""
    ends = np.cumsum(sizes)
    last_token = {
        id(tile.row): end - 1
        for tile, end in zip(tiles, ends, strict=True)
        if tile.context == tile.row.sequence.num_tokens
    }
    return np.array([last_token[id(row)] for row in rows if row.samples], dtype=np.int64)


def _block_table(
    tiles: Many[Tile], block_size: int, null_block_id: int, dtype: type[np.integer]
) -> np.ndarray:
    """The blocks that each tile reads, [B, M], padded with the null block."""
    num_blocks = [blocks_for(tile.context, block_size) for tile in tiles]
    table = np.full((len(tiles), max(num_blocks)), null_block_id, dtype=dtype)
    for row, tile, size in zip(table, tiles, num_blocks, strict=True):
        row[:size] = tile.row.sequence.block_table[:size]
    return table


def _build_group(
    tiles: Many[Tile], first: int, table_BM: np.ndarray, device: str
) -> AttentionGroup:
    sizes = np.array([tile.num_queries for tile in tiles])
    starts = np.array([tile.start for tile in tiles])
    offsets = np.arange(sizes.max())[None, :]
    is_real = offsets < sizes[:, None]
    positions = np.where(is_real, starts[:, None] + offsets, PADDING_POSITION)
    real = None if is_real.all() else _tensor(np.flatnonzero(is_real), device)
    return AttentionGroup(
        first=first,
        last=first + int(sizes.sum()),
        block_table_BM=_tensor(table_BM, device),
        position_BQ=_tensor(positions, device),
        real_n=real,
    )


def _tensor(array: np.ndarray, device: str) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64)).to(device)
