"""Summaries against values worked out by hand."""

import numpy as np
import pytest

from tokentide.bench.statistics import Summary, median, percentile, ratio


@pytest.mark.parametrize("share", [0, 1, 37, 50, 90, 99, 100])
@pytest.mark.parametrize("count", [1, 2, 3, 10, 101])
def test_percentiles_are_numpys_default(count: int, share: int) -> None:
    values = sorted((7 * number) % 23 / 3 for number in range(count))

    assert percentile(values, share) == pytest.approx(float(np.percentile(values, share)))


def test_a_summary_holds_mean_percentiles_and_the_greatest() -> None:
    summary = Summary.of([4.0, 1.0, 3.0, 2.0])

    assert (summary.count, summary.mean, summary.p50, summary.max) == (4, 2.5, 2.5, 4.0)


def test_nothing_has_no_mean() -> None:
    assert Summary.of([]).as_dict() == {
        "count": 0,
        "mean": None,
        "p50": None,
        "p90": None,
        "p99": None,
        "max": None,
    }


def test_a_ratio_to_nothing_is_none() -> None:
    assert ratio(3.0, 0.0) is None
    assert ratio(3.0, 2.0) == 1.5


def test_the_median_of_two_lies_between_them() -> None:
    assert median([1.0, 2.0]) == 1.5
