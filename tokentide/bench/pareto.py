"""Which of several choices are worth making when two costs count. Pure arithmetic."""

from collections.abc import Sequence


def pareto_front(costs: Sequence[tuple[float, float]]) -> list[int]:
    """Indexes of those that no other beats: none is at most as costly in both and less in one."""
    return [
        index
        for index, (first, second) in enumerate(costs)
        if not any(
            other_first <= first
            and other_second <= second
            and (other_first < first or other_second < second)
            for other_first, other_second in costs
        )
    ]
