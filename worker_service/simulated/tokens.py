"""What a simulated model says: a pure function of seed, child and index.

So an output is the same whatever was chunked, preempted, moved or computed again.
"""

import hashlib
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from shared.lengths import Lengths
from worker_service.engine.prefix_cache import u32_bytes
from worker_service.engine.sequence import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedText:
    """`vocabulary`: ids are in [0, vocabulary). `lengths` None: never a stop token."""

    vocabulary: int
    lengths: Lengths | None = None

    def num_output_tokens(self, sequence: Sequence) -> int | None:
        """After so many tokens, the stop token among them, it would stop. None: never.

        The prompt counts too: clients that give all requests one seed want several lengths.
        """
        if self.lengths is None or not sequence.stop_ids:
            return None
        prompt = zlib.crc32(u32_bytes(sequence.token_ids[: sequence.num_prompt_tokens]))
        sampling = sequence.sampling
        source = random.Random(f"{sampling.seed}/{sampling.child_index}/{prompt}")
        return self.lengths.draw(source)

    def token_id(self, sequence: Sequence, num_output_tokens: int | None) -> int:
        """The next token, given what `num_output_tokens` has said of the sequence."""
        index = sequence.num_output_tokens
        if num_output_tokens is not None and index + 1 >= num_output_tokens and sequence.can_stop():
            return min(sequence.stop_ids)
        sampling = sequence.sampling
        return sampled_id(
            (sampling.seed, sampling.child_index, index),
            self.vocabulary,
            sequence.stop_ids.__contains__,
        )


def sampled_id(
    place: tuple[int, int, int], vocabulary: int, is_forbidden: Callable[[int], bool]
) -> int:
    """`place`: seed, child index, output index. The next id that is allowed follows a forbidden one."""
    seed, child_index, index = place
    data = seed.to_bytes(8, "little") + child_index.to_bytes(8, "little")
    digest = hashlib.blake2b(data + index.to_bytes(4, "little"), digest_size=4).digest()
    token_id = int.from_bytes(digest, "little") % vocabulary
    for _ in range(vocabulary):
        if not is_forbidden(token_id):
            break
        token_id = (token_id + 1) % vocabulary
    return token_id
