"""What a load came to: percentiles as asked, and requests that met the SLO each."""

import math

import pytest
from advice import make_figures

from tokentide.advisor.figures import Slo, figures_of
from tokentide.bench.load import Observation
from tokentide.bench.operations_watch import Steps
from tokentide.bench.report import Measured


def observed(first_s: float, gap_s: float, num_tokens: int = 5, **fields) -> Observation:
    arrivals = [(first_s + n * gap_s, 1) for n in range(num_tokens)]
    ended_s = arrivals[-1][0]
    return Observation(request_id="r", due_s=0.0, arrivals=arrivals, ended_s=ended_s, **fields)


def measured(*observations: Observation, started_s: float = 0.0) -> Measured:
    return Measured(
        observations=observations,
        started_s=started_s,
        totals=None,
        steps=Steps(),
        blocks_per_worker=0,
    )


def test_times_are_at_the_percentile_of_the_slo() -> None:
    load = measured(*(observed(float(first), 0.1) for first in range(1, 12)))

    figures = figures_of(load, Slo(percentile=90))

    assert figures.ttft_s == pytest.approx(10.0)
    assert figures.itl_s == pytest.approx(0.1)
    assert figures.ttft_p50_s == pytest.approx(6.0)
    assert figures.tokens_per_s == pytest.approx(55 / 11.4)


def test_good_requests_meet_both_limits_themselves() -> None:
    good, late, slow = observed(0.5, 0.1), observed(2.0, 0.1), observed(0.5, 0.9)
    failed = observed(0.5, 0.1, status="INTERNAL")
    slo = Slo(ttft_s=1.0, itl_s=0.2)

    figures = figures_of(measured(good, late, slow, failed), slo)

    assert figures.goodput_per_s == pytest.approx(1 / figures.duration_s)
    assert (figures.num_ok, figures.num_failed) == (3, 1)


def test_an_answer_in_one_piece_has_no_gap_that_could_be_too_long() -> None:
    whole = Observation(request_id="r", due_s=0.0, arrivals=[(0.5, 9)], ended_s=0.5)
    slo = Slo(itl_s=0.01)

    figures = figures_of(measured(whole), slo)

    assert figures.itl_s is None
    assert slo.excess(figures) == 0
    assert figures.goodput_per_s > 0


def test_the_excess_is_the_worse_of_the_two() -> None:
    slo = Slo(ttft_s=1.0, itl_s=0.1)

    assert slo.excess(make_figures(ttft_s=0.5, itl_s=0.2)) == pytest.approx(2)
    assert slo.excess(make_figures(ttft_s=3.0, itl_s=0.2)) == pytest.approx(3)
    assert Slo().excess(make_figures()) == 0
    assert Slo().excess(make_figures(num_ok=0)) == math.inf


@pytest.mark.parametrize(
    "fields",
    [
        {"percentile": 0},
        {"percentile": 101},
        {"percentile": math.nan},
        {"ttft_s": 0.0},
        {"itl_s": math.nan},
        {"itl_s": math.inf},
    ],
)
def test_what_nobody_can_ask_is_refused(fields) -> None:
    with pytest.raises(ValueError, match=r"percentile|above 0"):
        Slo(**fields)
