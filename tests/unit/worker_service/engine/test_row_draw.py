"""Draws of one row: wherever the order is cut, and wherever the number falls."""

from typing import Any

import numpy as np
import pytest

from shared.types import SamplingParams
from worker_service.engine.row_draw import draw_row


def logits_of(*weights: float) -> np.ndarray:
    return np.log(np.array(weights, dtype=np.float32))


def ids_drawn(logits_V: np.ndarray, **params: Any) -> list[int]:
    """By numbers from 0 to just below 1."""
    sampling = SamplingParams(temperature=1.0, **params)
    return [draw_row(logits_V, sampling, number) for number in np.linspace(0, 1 - 1e-9, 2001)]


# weights on both sides of the bounds by which candidates are found
WEIGHTS = (1.0, 1e-2, 1e-4, 1e-4, 5e-6, 1e-7)


def test_each_id_is_drawn_as_often_as_it_weighs() -> None:
    drawn = ids_drawn(logits_of(0.2, 0.5, 0.3))

    assert drawn == sorted(drawn, key=[1, 2, 0].index)  # the likeliest first
    assert np.bincount(drawn) == pytest.approx([400, 1000, 600], abs=2)


@pytest.mark.parametrize("last", range(len(WEIGHTS)))
def test_the_last_number_draws_the_last_that_top_k_keeps(last: int) -> None:
    sampling = SamplingParams(temperature=1.0, top_k=last + 1)

    assert draw_row(logits_of(*WEIGHTS), sampling, 1 - 1e-12) == last


@pytest.mark.parametrize("share", [0.5, 0.985, 0.9999, 0.999995, 0.99999999])
def test_top_p_keeps_the_fewest_that_reach_its_share(share: float) -> None:
    running = np.cumsum(np.exp(logits_of(*WEIGHTS)), dtype=np.float64)
    expected = int((running < share * running[-1]).sum())

    sampling = SamplingParams(temperature=1.0, top_p=share)

    assert draw_row(logits_of(*WEIGHTS), sampling, 1 - 1e-12) == expected


@pytest.mark.parametrize(("floor", "expected"), [(0.5, 0), (1e-3, 1), (5e-5, 3), (1e-6, 4)])
def test_min_p_keeps_what_is_likely_enough(floor: float, expected: int) -> None:
    sampling = SamplingParams(temperature=1.0, min_p=floor)

    assert draw_row(logits_of(*WEIGHTS), sampling, 1 - 1e-12) == expected


def test_a_number_in_the_far_tail_draws_from_it() -> None:
    logits_V = np.full(1000, np.log(1e-7), dtype=np.float32)
    logits_V[500] = 0.0

    sampling = SamplingParams(temperature=1.0)

    assert draw_row(logits_V, sampling, 0.5) == 500
    assert draw_row(logits_V, sampling, 1 - 1e-12) == 999
    assert draw_row(logits_V, sampling, 1 - 9.985e-5) == 0


def test_equals_are_ordered_by_id_though_top_k_cuts_between_them() -> None:
    assert set(ids_drawn(np.zeros(500, dtype=np.float32), top_k=3)) == {0, 1, 2}


def test_a_temperature_near_zero_overflows_nothing() -> None:
    assert draw_row(logits_of(0.1, 0.9), SamplingParams(temperature=1e-38), 0.999) == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rows_without_probabilities_draw_something_harmless(bad: float) -> None:
    logits_V = np.array([0.0, bad, 1.0], dtype=np.float32)

    assert draw_row(logits_V, SamplingParams(temperature=1.0), 0.5) == 0
