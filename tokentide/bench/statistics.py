"""Summaries of measured values. Knows nothing of requests or services.

Percentiles interpolate linearly between the two closest ranks (numpy's default, Hyndman-Fan type 7).
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

PERCENTILE_METHOD = "linear interpolation between closest ranks (Hyndman-Fan 7)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """`count` values; the others are None where there is none."""

    count: int
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    max: float | None = None

    @classmethod
    def of(cls, values: Iterable[float]) -> "Summary":
        ordered = sorted(values)
        if not ordered:
            return cls(count=0)
        return cls(
            count=len(ordered),
            mean=sum(ordered) / len(ordered),
            p50=percentile(ordered, 50),
            p90=percentile(ordered, 90),
            p99=percentile(ordered, 99),
            max=ordered[-1],
        )

    def as_dict(self) -> dict[str, float | None]:
        return asdict(self)


def percentile(ordered: Sequence[float], share: float) -> float:
    """`ordered` ascending and not empty; `share` in percent."""
    position = (len(ordered) - 1) * share / 100
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def median(values: Iterable[float]) -> float:
    return percentile(sorted(values), 50)


def ratio(numerator: float, denominator: float) -> float | None:
    """None where there is nothing to divide by."""
    return numerator / denominator if denominator else None
