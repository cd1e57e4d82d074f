"""Draws: greedy, filtered, and the same again for the same numbers."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from shared.types import SamplingParams
from worker_service.engine.sampler import NUM_CANDIDATES, Draw, draw_rows, sample, uniform

WIDE = 4 * NUM_CANDIDATES  # a vocabulary that does not fit the candidates


def make_draw(token_index: int = 0, forbidden_ids: tuple[int, ...] = (), **params: Any) -> Draw:
    return Draw(
        sampling=SamplingParams(**params), token_index=token_index, forbidden_ids=forbidden_ids
    )


def draw_many(logits: torch.Tensor, num_draws: int, **params: Any) -> list[int]:
    draws = [make_draw(token_index=index, **params) for index in range(num_draws)]
    return sample(logits.repeat(num_draws, 1), draws).token_ids


def reference_draw(logits: torch.Tensor, draw: Draw) -> int:
    """The documented rule, word by word, for one row."""
    params = draw.sampling
    probs = (logits - logits.max()).div(params.temperature).softmax(-1)
    order = sorted(range(len(probs)), key=lambda i: (-float(probs[i]), i))
    running = np.cumsum([float(probs[i]) for i in order])
    kept = params.top_k or len(order)
    kept_by_k = running[min(kept, len(order)) - 1]
    if params.top_p < 1:
        kept = min(kept, 1 + int((running < params.top_p * kept_by_k).sum()))
    if params.min_p > 0:
        floor = params.min_p * float(probs[order[0]])
        kept = min(kept, max(1, sum(float(p) >= floor for p in probs)))
    kept = min(kept, len(order))
    number = uniform([params.seed], [params.child_index], [draw.token_index])[0]
    place = int((running[:kept] <= number * running[kept - 1]).sum())
    return order[min(place, kept - 1)]


def test_temperature_zero_takes_the_likeliest_and_of_equals_the_first() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0], [2.0, 2.0, 2.0]])

    sampled = sample(logits, [make_draw(temperature=0.0), make_draw(temperature=0.0)])

    assert sampled.token_ids == [1, 0]
    assert sampled.is_finite == [True, True]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_row_without_finite_logits_is_told_and_leaves_the_others_alone(bad: float) -> None:
    logits = torch.tensor([[0.0, bad, 1.0], [0.0, 1.0, 0.0]])

    sampled = sample(logits, [make_draw(temperature=1.0), make_draw(temperature=0.0)])

    assert sampled.is_finite == [False, True]
    assert sampled.token_ids[1] == 1


def test_forbidden_ids_are_never_drawn() -> None:
    logits = torch.tensor([5.0, 9.0, 1.0])

    assert set(draw_many(logits.clone(), 200, forbidden_ids=(0, 1, 77))) == {2}
    assert draw_many(logits.clone(), 1, forbidden_ids=(1,), temperature=0.0) == [0]


def test_uniform_numbers_are_in_range_spread_evenly_and_fixed_for_ever() -> None:
    numbers = uniform([5] * 10_000, [0] * 10_000, range(10_000))

    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert abs(np.histogram(numbers, bins=10, range=(0, 1))[0] - 1000).max() < 130
    assert uniform([2**64 - 1], [3], [4])[0] == _splitmix_uniform(2**64 - 1, 3, 4)
    assert len(set(uniform([1, 2, 1, 1], [0, 0, 1, 0], [0, 0, 0, 1]))) == 4


def _splitmix_uniform(*parts: int) -> float:
    """The formula of the module's docstring, in plain integers."""
    hashed, mask = 0, 2**64 - 1
    for part in parts:
        hashed = (hashed + part + 0x9E3779B97F4A7C15) & mask
        hashed = ((hashed ^ (hashed >> 30)) * 0xBF58476D1CE4E5B9) & mask
        hashed = ((hashed ^ (hashed >> 27)) * 0x94D049BB133111EB) & mask
        hashed ^= hashed >> 31
    return (hashed >> 11) * 2.0**-53


def test_frequencies_follow_the_probabilities() -> None:
    probs = torch.tensor([0.5, 0.3, 0.15, 0.05])

    drawn = draw_many(probs.log(), 8000, seed=11)

    counts = torch.bincount(torch.tensor(drawn), minlength=4) / 8000
    assert (counts - probs).abs().max() < 0.02


def test_a_high_temperature_flattens_and_a_tiny_one_is_greedy() -> None:
    logits = torch.tensor([4.0, 2.0, 0.0])

    assert draw_many(logits, 300, temperature=100.0).count(2) > 50
    assert set(draw_many(logits, 300, temperature=1e-9)) == {0}


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        ({"top_k": 1}, {0}),
        ({"top_k": 2}, {0, 1}),
        ({"top_k": 50}, {0, 1, 2, 3}),
        ({"top_p": 0.49}, {0}),
        ({"top_p": 0.51}, {0, 1}),
        ({"top_p": 1e-9}, {0}),
        ({"min_p": 1.0}, {0}),
        ({"min_p": 0.25}, {0, 1, 2}),
        ({"top_k": 3, "top_p": 0.6}, {0, 1}),
        ({"top_k": 3, "min_p": 0.5}, {0, 1}),
    ],
)
def test_filters_keep_a_beginning_of_the_order(params: dict[str, Any], kept: set[int]) -> None:
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()

    assert set(draw_many(logits, 400, **params)) == kept


def test_equal_probabilities_are_ordered_by_id() -> None:
    assert set(draw_many(torch.zeros(6), 300, top_k=3)) == {0, 1, 2}
    assert set(draw_many(torch.zeros(WIDE), 40, top_k=3)) == {0, 1, 2}


@pytest.mark.parametrize("scale", [0.0, 0.05, 1.0, 6.0])
def test_candidates_draw_what_the_whole_order_would(scale: float) -> None:
    generator = torch.Generator().manual_seed(3)
    draws = [
        make_draw(
            token_index=index,
            seed=index * 977,
            temperature=[0.7, 1.0, 1.5][index % 3],
            top_k=[0, 5, NUM_CANDIDATES, NUM_CANDIDATES + 9, 10 * WIDE][index % 5],
            top_p=[1.0, 0.9, 0.2][index % 3],
            min_p=[0.0, 0.0, 0.0, 0.01][index % 4],
        )
        for index in range(30)
    ]
    logits = torch.randn(30, WIDE, generator=generator) * scale

    expected = [reference_draw(row, draw) for row, draw in zip(logits, draws, strict=True)]

    assert sample(logits.clone(), draws).token_ids == expected
    assert draw_rows(logits.clone(), draws).tolist() == expected  # what other devices do


def test_a_draw_depends_on_nobody_else_in_the_step() -> None:
    logits = torch.randn(7, WIDE, generator=torch.Generator().manual_seed(5))
    draws = [make_draw(token_index=i, seed=i, temperature=float(i % 3)) for i in range(7)]
    together = sample(logits.clone(), draws).token_ids

    alone = [sample(logits[i : i + 1].clone(), [draws[i]]).token_ids[0] for i in range(7)]

    assert alone == together
