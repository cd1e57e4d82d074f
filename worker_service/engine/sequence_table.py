"""All live sequences of a worker and the blocks they hold: admit, grow, publish, release.

Knows nothing of tensors or models; every method either does all it says or changes nothing.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from shared.blocks import blocks_for, blocks_to_run
from shared.types import Admission, BlockCounts, Refusal, RefusalReason, SamplingParams
from worker_service.engine.block_allocator import BlockAllocator
from worker_service.engine.prefix_cache import ROOT, BlockKey, PrefixCache
from worker_service.engine.promised_blocks import Promise, PromisedBlocks
from worker_service.engine.sequence import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLimits:
    """What an admission is checked against."""

    block_size: int
    num_blocks: int
    max_sequences: int
    max_model_tokens: int
    num_token_ids: int  # ids are [0, num_token_ids)
    prefix_cache: bool


class SequenceTable:
    """Owns every block of the cache and every live sequence, by handle."""

    def __init__(self, limits: TableLimits, fingerprint: str) -> None:
        self._limits = limits
        self._prefix_cache = PrefixCache(limits.block_size, fingerprint)
        self._allocator = BlockAllocator(limits.num_blocks, self._prefix_cache)
        self._promised = PromisedBlocks()
        self._sequences: dict[int, Sequence] = {}

    def get(self, handle: int) -> Sequence | None:
        return self._sequences.get(handle)

    def all(self) -> tuple[Sequence, ...]:
        return tuple(self._sequences.values())

    def counts(self) -> BlockCounts:
        return self._allocator.counts()

    def admit(self, admission: Admission) -> Refusal | None:
        """Take the sequence with all blocks its tokens need, or answer why not.

        Full blocks found in the prefix cache are shared and count as computed, save that the last
        token is always left to compute: something must sample.
        """
        if fault := self._fault(admission):
            reason, detail = fault
            return Refusal(handle=admission.handle, reason=reason, detail=detail)
        sequence = Sequence.admitted(admission)
        shared, keys = self._find_prefix(sequence)
        self._allocator.share(shared)
        num_needed = blocks_for(sequence.num_tokens, self._limits.block_size) - len(shared)
        fresh = self._allocator.allocate(num_needed)
        if fresh is None:
            self._allocator.free(shared)
            return self._no_free_block(sequence.handle, num_needed)
        sequence.block_table = shared + fresh
        sequence.block_keys = keys
        sequence.num_computed_tokens = len(shared) * self._limits.block_size
        sequence.num_cached_tokens = sequence.num_computed_tokens
        self._sequences[sequence.handle] = sequence
        return None

    def grow(self, sequence: Sequence, num_tokens: int) -> Refusal | None:
        """Give it the blocks that computing so many more tokens needs, or answer why not."""
        num_short = sequence.num_blocks_short(
            sequence.num_computed_tokens + num_tokens, self._limits.block_size
        )
        fresh = self._allocator.allocate(num_short)
        if fresh is None:
            return self._no_free_block(sequence.handle, num_short)
        sequence.block_table += fresh
        return None

    def join(self, sequence: Sequence) -> None:
        """Before its first chunk: take what has been published since it was admitted, and what rows
        before it compute in this step. It starts behind that, and frees blocks of its own."""
        size, first = self._limits.block_size, len(sequence.block_keys)
        has_begun = sequence.num_computed_tokens != sequence.num_cached_tokens
        if has_begun or not self._limits.prefix_cache or not self._is_trusted(sequence):
            return
        usable = sequence.token_ids[first * size : sequence.num_tokens - 1]
        keys = self._prefix_cache.keys(usable, sequence.cache_salt, sequence.last_key)
        for index, key in enumerate(keys, start=first):
            block_id = self._prefix_cache.find(key)
            if block_id is None:
                promise = self._promised.find(key)
                if promise is None:
                    return
                self._promised.borrow(sequence.handle, promise, index)
                block_id = promise.block_id
            self._replace_block(sequence, index, block_id)
            sequence.block_keys.append(key)
            sequence.num_computed_tokens += size
            sequence.num_cached_tokens += size

    def promise(self, sequence: Sequence, num_tokens: int) -> None:
        """Let rows after this one build on the blocks that its chunk fills."""
        size, first = self._limits.block_size, len(sequence.block_keys)
        end = (sequence.num_computed_tokens + num_tokens) // size
        if num_tokens == 1 or end <= first or not self._limits.prefix_cache:
            return  # a single token is a decode: nobody arrives with its block
        if not self._is_trusted(sequence):
            return
        new_tokens = sequence.token_ids[first * size : end * size]
        keys = self._prefix_cache.keys(new_tokens, sequence.cache_salt, sequence.last_key)
        for index, key in enumerate(keys, start=first):
            promise = Promise(sequence.block_table[index], sequence.handle, (index + 1) * size)
            self._promised.promise(key, promise)

    def forget_promises(self) -> None:
        """Another step begins."""
        self._promised = PromisedBlocks()

    def spoiled(self, first_bad: Mapping[int, int]) -> set[int]:
        """Handles of rows built on tokens of this step that came out bad: handle -> position."""
        return self._promised.spoiled(first_bad)

    def give_back(self, sequence: Sequence) -> list[int]:
        """Undo the step for a borrower: what it borrowed, and what it built on that, is computed
        anew. Answers freed blocks, which may hold bad numbers."""
        num_kept = self._promised.first_index(sequence.handle)
        if num_kept is None:
            return []
        freed = self._allocator.free(sequence.block_table[num_kept:])
        del sequence.block_table[num_kept:], sequence.block_keys[num_kept:]
        sequence.num_computed_tokens = num_kept * self._limits.block_size
        sequence.num_cached_tokens = sequence.num_computed_tokens
        return freed

    def publish(self, sequence: Sequence) -> None:
        """Let others find the blocks that are full and computed since.

        Where an equal block is already known, the sequence takes that one and frees its own: so a
        published block's parents are always held at least as long as it is.
        """
        if not self._limits.prefix_cache:
            return
        size, first = self._limits.block_size, len(sequence.block_keys)
        num_full = sequence.num_computed_tokens // size
        if first >= num_full:
            return
        parent = sequence.last_key
        if parent != ROOT and self._prefix_cache.find(parent) != sequence.block_table[first - 1]:
            return  # its beginning is distrusted, so what follows is as well
        new_tokens = sequence.token_ids[first * size : num_full * size]
        keys = self._prefix_cache.keys(new_tokens, sequence.cache_salt, parent)
        for index, key in enumerate(keys, start=first):
            own = sequence.block_table[index]
            known = self._prefix_cache.publish(own, key, parent)
            if known != own:
                self._replace_block(sequence, index, known)
            sequence.block_keys.append(key)
            parent = key

    def release(self, handle: int) -> None:
        """Forget the sequence; its published blocks stay cached. An unknown handle is no fault."""
        sequence = self._sequences.pop(handle, None)
        if sequence is not None:
            self._allocator.free(sequence.block_table)

    def fail(self, sequence: Sequence) -> list[int]:
        """Forget a sequence whose keys and values are not to be trusted. Answers freed blocks."""
        del self._sequences[sequence.handle]
        freed = self._allocator.distrust(sequence.block_table)
        return freed + self._allocator.free(sequence.block_table)

    def clear(self) -> None:
        for handle in tuple(self._sequences):
            self.release(handle)

    def check_invariants(self) -> None:
        self._allocator.check_invariants([s.block_table for s in self._sequences.values()])

    def _is_trusted(self, sequence: Sequence) -> bool:
        """Whether the blocks with keys are still what others find, or are computed in this step."""
        if not sequence.block_keys:
            return True
        last, key = sequence.block_table[len(sequence.block_keys) - 1], sequence.last_key
        promise = self._promised.find(key)
        return self._prefix_cache.find(key) == last or (promise and promise.block_id) == last

    def _replace_block(self, sequence: Sequence, index: int, block_id: int) -> None:
        """Hold an equal block, and give up its own, where it has one."""
        self._allocator.share([block_id])
        self._allocator.free(sequence.block_table[index : index + 1])
        sequence.block_table[index : index + 1] = [block_id]

    def _find_prefix(self, sequence: Sequence) -> tuple[list[int], list[BlockKey]]:
        """Known blocks of its beginning, in token order, and their keys."""
        block_ids: list[int] = []
        block_keys: list[BlockKey] = []
        if not self._limits.prefix_cache:
            return block_ids, block_keys
        usable = sequence.token_ids[: sequence.num_tokens - 1]
        for key in self._prefix_cache.keys(usable, sequence.cache_salt, ROOT):
            block_id = self._prefix_cache.find(key)
            if block_id is None:
                break
            block_ids.append(block_id)
            block_keys.append(key)
        return block_ids, block_keys

    def _fault(self, admission: Admission) -> tuple[RefusalReason, str] | None:
        if admission.handle in self._sequences:
            return RefusalReason.DUPLICATE_HANDLE, "this handle is live"
        if detail := admission_fault(admission, self._limits):
            return RefusalReason.BAD_ADMISSION, detail
        if len(self._sequences) >= self._limits.max_sequences:
            return RefusalReason.SEQUENCE_CAP, f"{self._limits.max_sequences} sequences are live"
        return None

    def _no_free_block(self, handle: int, num_needed: int) -> Refusal:
        available = self._allocator.counts().available
        detail = f"needs {num_needed} blocks, {available} can be had"
        return Refusal(handle=handle, reason=RefusalReason.NO_FREE_BLOCK, detail=detail)


def admission_fault(admission: Admission, limits: TableLimits) -> str:
    """What makes this admission impossible for this worker at any time; empty if nothing does."""
    ids, stop = admission.token_ids, admission.stop
    num_prompt = admission.num_prompt_tokens
    if not 1 <= num_prompt <= len(ids):
        return f"{num_prompt} prompt tokens of {len(ids)} tokens"
    if len(ids) - num_prompt >= stop.max_tokens:
        return f"has {len(ids) - num_prompt} output tokens of at most {stop.max_tokens}"
    if num_prompt + stop.max_tokens - 1 > limits.max_model_tokens:
        return f"prompt and output may pass the model's {limits.max_model_tokens} tokens"
    if blocks_to_run(num_prompt, stop.max_tokens, limits.block_size) > limits.num_blocks:
        return f"may come to need more than all {limits.num_blocks} blocks"
    if min(ids) < 0 or max(ids) >= limits.num_token_ids:
        return f"token ids must be in [0, {limits.num_token_ids})"
    return _sampling_fault(admission.sampling)


def _sampling_fault(sampling: SamplingParams) -> str:
    if not (math.isfinite(sampling.temperature) and sampling.temperature >= 0):
        return f"temperature is {sampling.temperature}"
    if not 0 < sampling.top_p <= 1 or not 0 <= sampling.min_p <= 1 or sampling.top_k < 0:
        return "top_p must be in (0, 1], min_p in [0, 1], top_k at least 0"
    if not 0 <= sampling.seed < 2**64 or not 0 <= sampling.child_index < 2**64:
        return "seed and child index must be in [0, 2**64)"
    return ""
