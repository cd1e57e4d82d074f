"""Medians, ratios and the front, from rows."""

from typing import Any

import pytest

from bench.peers.rows import Key, Row
from bench.peers.summary import (
    HELD_BACK,
    Agreement,
    Metric,
    Point,
    agreement,
    best_peer,
    cells,
    dominates,
    front,
    points,
    ratio_to_best,
)

RATE = Metric("32", "tokens/s", ("tokens_per_s",))
TTFT_MS = Metric("32", "TTFT, ms", ("latency_s", "ttft"), 1e3, is_less_better=True)


def make_row(
    system: str, repeat: int = 0, step_tokens: int = 512, error: str = "", **figures: Any
) -> Row:
    key = Key("32", system, step_tokens, repeat)
    return Row(key=key, cpu="", figures=figures, error=error)


def test_a_cell_has_the_median_and_the_range_of_the_repeats() -> None:
    rows = [make_row("ours", n, tokens_per_s=value) for n, value in enumerate((3.0, 1.0, 2.0))]

    cell = cells(rows, RATE)["ours"]

    assert (cell.median, cell.low, cell.high, cell.num_runs) == (2.0, 1.0, 3.0, 3)


def test_the_best_setting_of_a_system_counts() -> None:
    rows = [
        make_row("llama", step_tokens=128, tokens_per_s=5.0, latency_s={"ttft": 0.1}),
        make_row("llama", step_tokens=512, tokens_per_s=9.0, latency_s={"ttft": 0.4}),
    ]

    assert cells(rows, RATE)["llama"].step_tokens == 512
    assert cells(rows, TTFT_MS)["llama"].step_tokens == 128
    assert cells(rows, TTFT_MS)["llama"].median == pytest.approx(100)


def test_a_failed_run_is_no_value() -> None:
    rows = [make_row("llama", tokens_per_s=5.0), make_row("llama", 1, error="it fell over")]

    assert cells(rows, RATE)["llama"].num_runs == 1
    assert cells([make_row("llama", error="it fell over")], RATE) == {}


def test_rows_of_another_workload_are_left_out() -> None:
    assert cells([make_row("ours", tokens_per_s=5.0)], Metric("one", "", ("tokens_per_s",))) == {}


def test_the_best_peer_is_not_ours_nor_one_with_a_quarter() -> None:
    rows = [
        make_row("ours", tokens_per_s=100.0),
        make_row("tf-static", tokens_per_s=90.0, is_quarter=True),
        make_row("llama", tokens_per_s=50.0),
        make_row("vllm", tokens_per_s=60.0),
    ]

    assert best_peer(cells(rows, RATE), RATE) == "vllm"


def test_a_ratio_above_one_means_ours_is_better_for_rates_and_for_times() -> None:
    rows = [
        make_row("ours", tokens_per_s=120.0, latency_s={"ttft": 0.5}),
        make_row("vllm", tokens_per_s=60.0, latency_s={"ttft": 2.0}),
    ]

    assert ratio_to_best(cells(rows, RATE), RATE) == pytest.approx(2)
    assert ratio_to_best(cells(rows, TTFT_MS), TTFT_MS) == pytest.approx(4)


@pytest.mark.parametrize("system", ["ours", "vllm"])
def test_no_ratio_without_either_side(system: str) -> None:
    assert ratio_to_best(cells([make_row(system, tokens_per_s=1.0)], RATE), RATE) is None


def test_a_point_is_the_median_of_a_setting() -> None:
    rows = [
        make_row("ours", n, 64, worst_gap_s=gap, ttft_s=ttft)
        for n, (gap, ttft) in enumerate(((1.0, 30.0), (3.0, 10.0), (2.0, 20.0)))
    ]

    assert points(rows, "32") == [Point("ours", 64, 2.0, 20.0)]


def test_a_point_dominates_what_is_worse_in_one_and_better_in_none() -> None:
    point = Point("a", 1, 1.0, 10.0)

    assert dominates(point, Point("b", 1, 1.0, 11.0))
    assert not dominates(point, Point("b", 1, 0.9, 11.0))
    assert not dominates(point, point)


def test_the_front_keeps_what_nothing_dominates() -> None:
    fast, calm, bad = Point("a", 1, 3.0, 10.0), Point("b", 1, 1.0, 20.0), Point("c", 1, 3.0, 20.0)

    assert front([fast, calm, bad]) == [fast, calm]


def test_agreement_is_the_common_beginning_with_ours_of_each_run() -> None:
    rows = [
        make_row("ours", 0, first_tokens=[1, 2, 3, 4]),
        make_row("ours", 1, first_tokens=[5, 6, 7, 8]),
        make_row("llama", 0, first_tokens=[1, 2, 3, 4]),
        make_row("llama", 1, first_tokens=[5, 6, 9, 8]),
    ]

    assert agreement(rows, "llama") == [Agreement(4, 4), Agreement(2, 4)]


def test_a_token_held_back_agrees_with_any() -> None:
    rows = [
        make_row("ours", first_tokens=[1, 2, 3]),
        make_row("llama", first_tokens=[1, HELD_BACK, 3]),
    ]

    (found,) = agreement(rows, "llama")
    assert found.is_whole


def test_without_a_run_of_ours_there_is_no_agreement() -> None:
    assert agreement([make_row("llama", first_tokens=[1])], "llama") == []
