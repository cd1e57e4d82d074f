"""The verdict on chunk sizes from the times of tokens."""

import json
from collections.abc import Sequence

import pytest

from tokentide.bench.chunk import WHOLE, Trial
from tokentide.bench.chunk_report import chunk_report, table_of

FACTS = {"model": "m", "num_decodes": 1, "num_prompt_tokens": 10, "repeat": 1, "machine": {}}


def make_trial(size: int, during: Sequence[float], ttft_s: float) -> Trial:
    """One stream: gaps of 0.1 s before the prompt leaves at 1.0, then those given."""
    times = [0.1 * number for number in range(11)]
    for gap in during:
        times.append(times[-1] + gap)
    return Trial(
        size=size, streams=[times], before_s=0.0, sent_s=1.0001, first_token_s=1.0 + ttft_s
    )


def test_a_size_is_good_if_both_sides_wait_little() -> None:
    trials = [
        make_trial(64, [0.25] * 8, ttft_s=1.9),
        make_trial(8, [0.15] * 40, ttft_s=5.9),  # kind to the decodes, hard on the prompt
        make_trial(WHOLE, [1.0], ttft_s=0.9),
    ]

    report = chunk_report(FACTS, trials)

    assert report["good_sizes"] == [64]
    assert [entry["chunk_size"] for entry in report["sizes"]] == [8, 64, None]
    entry = report["sizes"][1]
    assert entry["worst_gap_ratio"] == pytest.approx(2.5)
    assert entry["ttft_ratio"] == pytest.approx(1.9 / 0.9, rel=1e-3)


def test_a_gap_that_only_overlaps_the_prefill_counts_as_during() -> None:
    trial = make_trial(WHOLE, [2.0, 0.1], ttft_s=0.5)

    (entry,) = chunk_report(FACTS, [trial])["sizes"]

    assert entry["gap_during_s"]["worst"] == pytest.approx(2.0)
    assert entry["gap_before_s"]["worst"] == pytest.approx(0.1)


def test_repeats_are_medians_and_one_disturbed_trial_does_not_decide() -> None:
    trials = [make_trial(64, [gap], ttft_s=gap) for gap in (0.2, 0.25, 9.0)]
    trials += [make_trial(WHOLE, [1.0], ttft_s=0.9) for _ in range(3)]

    report = chunk_report(FACTS, trials)

    assert report["sizes"][0]["gap_during_s"]["worst"] == pytest.approx(0.25)
    assert report["good_sizes"] == [64]


def test_the_report_is_json_and_has_a_table() -> None:
    report = chunk_report(FACTS, [make_trial(64, [0.2], 0.2), make_trial(WHOLE, [1.0], 0.9)])

    json.dumps(report, allow_nan=False)
    assert table_of(report).row_count == 2
