"""What a load came to, as far as advice needs it, and what is asked of it. Times in seconds.

Pure arithmetic: the load may have been simulated or real.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tokentide.bench.arrivals import window_of
from tokentide.bench.load import OK, Observation
from tokentide.bench.report import Measured, figures, token_gaps
from tokentide.bench.statistics import percentile, ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """None: nobody had such a time, as there are no gaps in an answer that comes in one piece.

    Rates of an open loop are of the second half of its arrivals: see `bench.arrivals`.
    """

    tokens_per_s: float  # that reached clients
    requests_per_s: float
    goodput_per_s: float  # requests that met the SLO each; open loop: of those that came
    ttft_s: float | None  # at the SLO's percentile, as are the next two
    itl_s: float | None
    end_to_end_s: float | None
    ttft_p50_s: float | None
    itl_p50_s: float | None
    end_to_end_p50_s: float | None
    duration_s: float
    num_ok: int
    num_failed: int
    num_preemptions: int
    offered_tokens_per_s: float | None = None  # open loop: of the answers to what came


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """None: nothing is asked. Times at `percentile` in percent."""

    ttft_s: float | None = None
    itl_s: float | None = None
    percentile: float = 99.0

    def __post_init__(self) -> None:
        if not 0 < self.percentile <= 100:
            raise ValueError(f"a percentile is in (0, 100], not {self.percentile:g}")
        asked = (limit for limit in (self.ttft_s, self.itl_s) if limit is not None)
        if not all(0 < limit < math.inf for limit in asked):  # NaN is in no range
            raise ValueError("an SLO must be a number above 0 ms")

    @property
    def is_asked(self) -> bool:
        return self.ttft_s is not None or self.itl_s is not None

    def shares(self, of: Figures) -> list[float]:
        """Each time over what is asked: up to 1 is met. Nobody served is nothing met."""
        if not of.num_ok:
            return [math.inf]
        pairs = ((of.ttft_s, self.ttft_s), (of.itl_s, self.itl_s))
        return [(time_s or 0.0) / limit_s for time_s, limit_s in pairs if limit_s is not None]

    def excess(self, of: Figures) -> float:
        """The worst of the shares; 0 if nothing is asked."""
        return max(self.shares(of), default=0.0)

    def is_met_by(self, observation: Observation) -> bool:
        """By one request: its own time to first token, its own gaps at the percentile."""
        if observation.status != OK or observation.first_token_s is None:
            return False
        ttft_s = observation.first_token_s - observation.due_s
        gap_s = _at(self.percentile, token_gaps(observation.arrivals)) or 0.0
        return (self.ttft_s is None or ttft_s <= self.ttft_s) and (
            self.itl_s is None or gap_s <= self.itl_s
        )


def figures_of(measured: Measured, slo: Slo) -> Figures:
    """By the methods of `bench serve`; percentiles are the SLO's."""
    whole = figures(measured)
    counted = [o for o in measured.observations if o.due_s >= measured.started_s]
    good = [o for o in counted if o.status == OK]
    duration_s = whole["duration_s"]
    latency, rates = whole["latency_s"], whole["arrivals"] or whole["throughput"]
    first_s = [o.first_token_s - o.due_s for o in good if o.first_token_s is not None]
    return Figures(
        tokens_per_s=rates["generated_tokens_per_s"] or 0.0,
        requests_per_s=rates["requests_per_s"] or 0.0,
        goodput_per_s=_goodput_per_s(measured, slo),
        ttft_s=_at(slo.percentile, first_s),
        itl_s=_at(slo.percentile, [gap for o in good for gap in token_gaps(o.arrivals)]),
        end_to_end_s=_at(slo.percentile, [o.ended_s - o.due_s for o in good]),
        ttft_p50_s=latency["ttft"]["p50"],
        itl_p50_s=latency["itl"]["p50"],
        end_to_end_p50_s=latency["end_to_end"]["p50"],
        duration_s=duration_s,
        num_ok=len(good),
        num_failed=len(counted) - len(good),
        num_preemptions=whole["service"]["num_preemptions"] if whole["service"] else 0,
        offered_tokens_per_s=rates.get("offered_tokens_per_s"),
    )


def _goodput_per_s(measured: Measured, slo: Slo) -> float:
    window = None
    if measured.is_open_loop:
        window = window_of(measured.observations, measured.started_s)
    if window is None:
        came = [o for o in measured.observations if o.due_s >= measured.started_s]
        window = (measured.started_s, measured.ended_s)
    else:
        came = [o for o in measured.observations if window[0] < o.due_s <= window[1]]
    return ratio(sum(map(slo.is_met_by, came)), window[1] - window[0]) or 0.0


def _at(share: float, values: Sequence[float]) -> float | None:
    return percentile(sorted(values), share) if values else None
