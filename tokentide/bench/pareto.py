"""Which of several choices are worth making when several costs count. Pure arithmetic."""

from collections.abc import Sequence


def pareto_front(costs: Sequence[tuple[float, ...]]) -> list[int]:
    """Indexes of those that no other beats: none is at most as costly in all and less in one."""
    return [
        index
        for index, mine in enumerate(costs)
        if not any(
            other != mine and all(theirs <= own for theirs, own in zip(other, mine, strict=True))
            for other in costs
        )
    ]
