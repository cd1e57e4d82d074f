"""Which beginnings of prompts a worker has, as far as its driver can tell from what it had computed there.

An estimate: the worker may have evicted some since. Knows nothing of blocks.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from scheduler_service.planning.live import LiveSequence
from shared.prefixes import PREFIX_LENGTHS, longest_known

MAX_KNOWN = 65_536  # hashes; the oldest are forgotten


@dataclass(slots=True)
class PrefixView:
    known: dict[int, None] = field(
        default_factory=dict
    )  # in the order in which they were seen last
    coming: dict[int, None] = field(default_factory=dict)  # of live prompts, still to be computed

    def expected_tokens(self, hashes: tuple[int, ...]) -> int:
        return longest_known(hashes, self.known.__contains__)

    def follow(self, live: Iterable[LiveSequence]) -> None:
        """See how far the live prompts are, plans in flight included."""
        self.coming.clear()
        for sequence in live:
            hashes = sequence.prefix_hashes
            if sequence.num_known_prefixes >= len(hashes) or sequence.ending is not None:
                continue
            num_known = sequence.num_known_prefixes
            while (
                num_known < len(hashes)
                and PREFIX_LENGTHS[num_known] <= sequence.planned_computed_tokens
            ):
                self.known.pop(hashes[num_known], None)
                self.known[hashes[num_known]] = None
                num_known += 1
            sequence.num_known_prefixes = num_known
            self.coming.update(dict.fromkeys(hashes[num_known:]))
        while len(self.known) > MAX_KNOWN:
            del self.known[next(iter(self.known))]

    def correct(self, sequence: LiveSequence, num_cached_tokens: int) -> None:
        """The worker found less than was expected: the rest has been evicted."""
        if num_cached_tokens < sequence.num_expected_cached_tokens:
            for length, known in zip(PREFIX_LENGTHS, sequence.prefix_hashes, strict=False):
                if num_cached_tokens < length <= sequence.num_expected_cached_tokens:
                    self.known.pop(known, None)
            sequence.num_known_prefixes = 0
