"""Which of several candidates is best: most of what is wanted, of those that meet the SLO.

Knows nothing of how the figures were made.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shared.strategy import StrategySettings
from tokentide.advisor.figures import Figures, Slo
from tokentide.bench.pareto import pareto_front

THROUGHPUT, GOODPUT = "throughput", "goodput"
OBJECTIVES = (THROUGHPUT, GOODPUT)
# A simulation does not tell values so close apart; of those, the one with the better times is taken.
NEAR = 0.01
# In an open loop all that keep up yield what arrives, give or take who was under way at the window's ends.
NEAR_OPEN = 0.03
# Of what is asked. Below it a time is met, whatever the prediction's error; it need not be shorter.
SAFE = 0.9


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
        is_open_loop = any(c.figures.offered_tokens_per_s is not None for c in candidates)
        most = max((self.value(c.figures) for c in meeting), default=0.0)
        least = most * (1 - (NEAR_OPEN if is_open_loop else NEAR))
        near = [c for c in meeting if self.value(c.figures) >= least]
        rest = [c for c in meeting if self.value(c.figures) < least]
        return [
            *self._quickest_first(near, {c.key for c in front(meeting)}),
            *sorted(rest, key=lambda c: -self.value(c.figures)),
            *self._closest_first(others),
        ]

    def _closest_first(self, others: Sequence[Candidate]) -> list[Candidate]:
        """By the worse of the two times; of those that are near in it, the better in both."""
        least = min((self.slo.excess(c.figures) for c in others), default=math.inf)

        def key(candidate: Candidate) -> tuple[bool, float, float]:
            figures = candidate.figures
            excess = self.slo.excess(figures)
            is_near = excess <= least * (1 + NEAR)
            distance = sum(self.slo.shares(figures)) if is_near else excess
            return (not is_near, distance, -figures.tokens_per_s)

        return sorted(others, key=key)

    def _quickest_first(self, near: Sequence[Candidate], unbeaten: set[str]) -> list[Candidate]:
        """No beaten one before the others; then those that are safe to meet what is asked; then by
        all times, asked or not, each over the least: what is met pays for nothing else."""
        leasts = _leasts([_times(c.figures) for c in near])

        def key(candidate: Candidate) -> tuple[bool, int, float, float]:
            figures = candidate.figures
            num_unsafe = sum(share > SAFE for share in self.slo.shares(figures))
            times = zip(_times(figures), leasts, strict=True)
            distance = sum(time / least for time, least in times if least)
            is_beaten = candidate.key not in unbeaten
            return is_beaten, num_unsafe, distance, figures.end_to_end_p50_s or math.inf

        return sorted(near, key=key)


def _times(of: Figures) -> list[float]:
    return [time or 0.0 for time in (of.ttft_s, of.itl_s, of.end_to_end_s)]


def _leasts(several: Sequence[Sequence[float]]) -> list[float]:
    """Of each time, the least that is one."""
    return [min((t for t in times if t), default=0.0) for times in zip(*several, strict=True)]


def front(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that no other beats in tokens/s, time to first token and gaps; most tokens/s first."""
    chosen = _unbeaten(_unbeaten(candidates, _costs), _shown)
    return sorted(chosen, key=lambda candidate: -candidate.figures.tokens_per_s)


def _unbeaten(
    candidates: Sequence[Candidate], costs: Callable[[Figures], tuple[float, ...]]
) -> list[Candidate]:
    """Of equal ones that with the most tokens/s."""
    distinct: dict[tuple[float, ...], Candidate] = {}
    for candidate in sorted(candidates, key=lambda c: -c.figures.tokens_per_s):
        distinct.setdefault(costs(candidate.figures), candidate)
    return [list(distinct.values())[place] for place in pareto_front(list(distinct))]


def _shown(of: Figures) -> tuple[float, ...]:
    """As a table has them: a line that looks beaten there only raises doubts."""
    times = [-math.inf if time is None else round(time * 1e3, 1) for time in (of.ttft_s, of.itl_s)]
    return (-round(of.tokens_per_s, 1), *times)


def _costs(of: Figures) -> tuple[float, ...]:
    """Values closer than NEAR become the same: else everything would be on the front."""
    return (-_grain(of.tokens_per_s), _grain(of.ttft_s), _grain(of.itl_s))


def _grain(value: float | None) -> float:
    """On a scale of logarithms, in steps of NEAR; 0 and nothing are below all else."""
    return float(round(math.log(value) / NEAR)) if value else -math.inf
