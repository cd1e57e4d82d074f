"""Blocks that the rows of one step will have filled when it is over, for later rows of that step.

A layer writes the keys and values of all tokens of a step before any of them attends. So a row may
build on blocks that another row of the same step computes, and requests that arrive together with
one beginning compute it once. If the lender's tokens come out as no numbers, borrowers give back.
Knows nothing of tensors, or of who holds a block.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from worker_service.engine.prefix_cache import BlockKey


@dataclass(frozen=True, slots=True)
class Promise:
    block_id: int
    lender: int  # handle
    end: int  # the block holds the lender's tokens up to this position


class PromisedBlocks:
    """Of one step. Lenders come before borrowers."""

    def __init__(self) -> None:
        self._promises: dict[BlockKey, Promise] = {}
        # borrower -> lender -> up to which position of the lender
        self._borrowed: dict[int, dict[int, int]] = defaultdict(dict)
        self._first_index: dict[int, int] = {}

    def promise(self, key: BlockKey, promise: Promise) -> None:
        self._promises.setdefault(key, promise)

    def find(self, key: BlockKey) -> Promise | None:
        return self._promises.get(key)

    def borrow(self, borrower: int, promise: Promise, index: int) -> None:
        """The promised block becomes the borrower's block number `index`."""
        self._borrowed[borrower][promise.lender] = promise.end
        self._first_index.setdefault(borrower, index)

    def first_index(self, borrower: int) -> int | None:
        """Which of its blocks is the first that it borrowed; None if none is."""
        return self._first_index.get(borrower)

    def spoiled(self, first_bad: Mapping[int, int]) -> set[int]:
        """Borrowers of blocks with bad tokens, given each lender's first bad position."""
        bad = dict(first_bad)
        spoiled = set()
        for borrower, lenders in self._borrowed.items():
            if any(bad.get(lender, end) < end for lender, end in lenders.items()):
                spoiled.add(borrower)
                bad[borrower] = 0  # all that it computed
        return spoiled
