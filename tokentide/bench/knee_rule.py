"""The knee of throughput over batch size, by a stated rule. Pure arithmetic.

Each added sequence should bring what the first one did: the linear slope is tokens/s at the smallest batch,
per sequence. The knee is the smallest batch from which the next measured one gains, per added sequence,
less than a stated share of that slope: growing further costs everyone more than it brings.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

DEFAULT_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    batch_size: int  # sequences in a step
    tokens_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    batch_size: int | None  # None: not among the batches measured
    linear_slope: float  # tokens/s per sequence, of the smallest batch
    marginal_gains: tuple[
        tuple[int, float], ...
    ]  # (batch, gain from it to the next, tokens/s a sequence)


def find_knee(points: Sequence[Throughput], share: float = DEFAULT_SHARE) -> Knee:
    """`points` in any order, each batch size once, at least one."""
    ordered = sorted(points, key=lambda point: point.batch_size)
    assert ordered, "a knee needs points"
    first = ordered[0]
    slope = first.tokens_per_s / first.batch_size
    gains = tuple(
        (
            below.batch_size,
            (above.tokens_per_s - below.tokens_per_s) / (above.batch_size - below.batch_size),
        )
        for below, above in pairwise(ordered)
    )
    knee = next((size for size, gain in gains if gain < share * slope), None)
    return Knee(batch_size=knee, linear_slope=slope, marginal_gains=gains)
