"""The search itself: a grid, then the neighbourhood of the best few, in ever smaller steps.

Whatever evaluates a setting is given; nothing here simulates, waits or reads a clock.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from shared.strategy import StrategySettings
from tokentide.advisor.figures import Figures
from tokentide.advisor.judging import Candidate, Judge

FEW = 3  # the best, whose neighbours are tried
FACTORS = (2.0, 1.4, 1.15)  # of one neighbour's size to the next
MAX_REFINED = 60  # evaluations after the grid, a third of them for each factor

Evaluate = Callable[[StrategySettings], Figures | None]  # None: they cannot serve the load


class Searchable(Protocol):
    def coarse(self) -> list[StrategySettings]: ...
    def neighbours(self, settings: StrategySettings, factor: float) -> list[StrategySettings]: ...


def search(
    space: Searchable,
    evaluate: Evaluate,
    judge: Judge,
    *,
    known: Sequence[Candidate] = (),
    num_coarse: int | None = None,
) -> Iterator[Candidate]:
    """Every candidate as soon as it is evaluated, none twice. `known` are evaluated already, and their
    neighbours count; of the grid only the first `num_coarse` are tried."""
    candidates = list(known)
    seen = {candidate.key for candidate in known}

    def fresh(settings: Sequence[StrategySettings]) -> Iterator[Candidate]:
        for one in settings:
            if one.as_json() in seen:
                continue
            seen.add(one.as_json())
            figures = evaluate(one)
            if figures is not None:
                candidates.append(Candidate(settings=one, figures=figures))
                yield candidates[-1]

    yield from fresh(space.coarse()[:num_coarse])
    most = len(seen)
    for factor in FACTORS:
        most += MAX_REFINED // len(FACTORS)
        while len(seen) < most:
            best = judge.ranked(candidates)[:FEW]
            near = [n for one in best for n in space.neighbours(one.settings, factor)]
            new = [settings for settings in near if settings.as_json() not in seen]
            if not new:
                break
            yield from fresh(new[: most - len(seen)])
