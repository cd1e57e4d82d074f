"""Which of several candidates is best: most of what is wanted, of those that meet the SLO.

Knows nothing of how the figures were made.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shared.strategy import StrategySettings
from tokentide.advisor.figures import Figures, Slo
from tokentide.bench.pareto import pareto_front

THROUGHPUT, GOODPUT = "throughput", "goodput"
OBJECTIVES = (THROUGHPUT, GOODPUT)
# A simulation does not tell values so close apart; of those, the one with the better times is taken.
NEAR = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    settings: StrategySettings
    figures: Figures

    @property
    def key(self) -> str:
        return self.settings.as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """`objective`: generated tokens/s of those that meet the SLO, or requests/s that meet it each."""

    slo: Slo
    objective: str = THROUGHPUT

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise ValueError(f"{self.objective!r} is none of: {', '.join(OBJECTIVES)}")

    def value(self, of: Figures) -> float:
        return of.goodput_per_s if self.objective == GOODPUT else of.tokens_per_s

    def meets(self, of: Figures) -> bool:
        """Goodput judges each request by the SLO already: any at all will do."""
        if self.objective == GOODPUT:
            return of.goodput_per_s > 0
        return self.slo.excess(of) <= 1

    def ranked(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Best first; behind those that meet the SLO the others, closest first."""
        meeting = [c for c in candidates if self.meets(c.figures)]
        others = [c for c in candidates if not self.meets(c.figures)]
        most = max((self.value(c.figures) for c in meeting), default=0.0)
        near = [c for c in meeting if self.value(c.figures) >= most * (1 - NEAR)]
        rest = [c for c in meeting if self.value(c.figures) < most * (1 - NEAR)]
        return [
            *sorted(near, key=lambda c: self._slowness(c.figures)),
            *sorted(rest, key=lambda c: -self.value(c.figures)),
            *sorted(others, key=lambda c: (self.slo.excess(c.figures), -c.figures.tokens_per_s)),
        ]

    def _slowness(self, of: Figures) -> tuple[float, float]:
        return sum(self.slo.shares(of)), of.end_to_end_p50_s or math.inf


def front(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that no other beats in tokens/s, time to first token and gaps; most tokens/s first."""
    distinct: dict[tuple[float, ...], Candidate] = {}
    for candidate in candidates:
        distinct.setdefault(_costs(candidate.figures), candidate)
    places = pareto_front(list(distinct))
    chosen = [list(distinct.values())[place] for place in places]
    return sorted(chosen, key=lambda candidate: -candidate.figures.tokens_per_s)


def _costs(of: Figures) -> tuple[float, ...]:
    """Values closer than NEAR become the same: else everything would be on the front."""
    return (-_grain(of.tokens_per_s), _grain(of.ttft_s), _grain(of.itl_s))


def _grain(value: float | None) -> float:
    """On a scale of logarithms, in steps of NEAR; 0 and nothing are below all else."""
    return float(round(math.log(value) / NEAR)) if value else -math.inf
