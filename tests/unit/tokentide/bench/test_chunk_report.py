"""The verdict on chunk sizes from the times of tokens and steps."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tokentide.bench.chunk import WHOLE
from tokentide.bench.chunk_plot import paint_chunk
from tokentide.bench.chunk_report import Slo, choice_text, chunk_report, tables_of
from tokentide.bench.chunk_run import ChunkTimes, chunk_run
from tokentide.bench.drawing import draw

FACTS = {
    "command": "c",
    "model": "m",
    "subject": "m on 2 cores",
    "machine": {"cores": 2},
    "settings": {"num_decodes": 1, "num_prompt_tokens": 10},
}


def make_row(
    size: int, during: Sequence[float], ttft_s: float, *, steps_s: Sequence[float] = ()
) -> dict[str, Any]:
    """One stream: gaps of 0.1 s before the prompt leaves at 1.0, then those given."""
    stream = [0.1 * number for number in range(11)]
    for gap in during:
        stream.append(stream[-1] + gap)
    times = ChunkTimes(
        size=size,
        streams=[stream],
        before_s=0.0,
        sent_s=1.0001,
        first_token_s=1.0 + ttft_s,
        num_prompt_tokens=100,
        prompt_steps_s=steps_s,
        decode_steps_s=[0.1] * 5,
    )
    return chunk_run(times)


def report_of(*rows: dict[str, Any], slo: Slo | None = None) -> dict[str, Any]:
    return chunk_report(FACTS, rows, 0, slo or Slo())


THREE = (
    make_row(64, [0.25] * 8, ttft_s=1.9),
    make_row(8, [0.15] * 40, ttft_s=5.9),  # kind to the decodes, hard on the prompt
    make_row(WHOLE, [1.0], ttft_s=0.9),
)


def test_a_size_is_good_if_both_sides_wait_little() -> None:
    report = report_of(*THREE)

    assert report["good_sizes"] == [64]
    assert [entry["chunk_size"] for entry in report["sizes"]] == [8, 64, None]
    entry = report["sizes"][1]
    assert entry["worst_gap_ratio"] == pytest.approx(2.5)
    assert entry["ttft_ratio"] == pytest.approx(1.9 / 0.9, rel=1e-3)


def test_a_gap_that_only_overlaps_the_prefill_counts_as_during() -> None:
    (entry,) = report_of(make_row(WHOLE, [2.0, 0.1], ttft_s=0.5))["sizes"]

    assert entry["gap_during_s"]["worst"] == pytest.approx(2.0)
    assert entry["gap_before_s"]["worst"] == pytest.approx(0.1)


def test_repeats_are_medians_and_one_disturbed_trial_does_not_decide() -> None:
    rows = [make_row(64, [gap], ttft_s=gap) for gap in (0.2, 0.25, 9.0)]
    rows += [make_row(WHOLE, [1.0], ttft_s=0.9) for _ in range(3)]

    report = report_of(*rows)

    assert report["sizes"][0]["gap_during_s"]["worst"] == pytest.approx(0.25)
    assert report["good_sizes"] == [64]


def test_the_loss_is_against_whole_prefill_and_the_own_cost_beyond_pure_decodes() -> None:
    chunked = make_row(50, [0.2], 0.5, steps_s=[0.25, 0.25])
    whole = make_row(WHOLE, [0.4], 0.4, steps_s=[0.4])

    report = report_of(chunked, whole)

    entry, whole_entry = report["sizes"]
    assert entry["prefill_tokens_per_s"] == pytest.approx(200)
    assert entry["prefill_loss"] == pytest.approx(0.2)
    assert whole_entry["prefill_loss"] == 0
    assert entry["prefill_own_s"] == pytest.approx(0.3)


def test_a_size_that_another_beats_in_both_is_not_on_the_front() -> None:
    report = report_of(*THREE, make_row(128, [0.5] * 4, ttft_s=3.0))

    assert {e["chunk_size"] for e in report["sizes"] if e["is_on_front"]} == {8, 64, None}


@pytest.mark.parametrize(
    ("slo", "chosen"),
    [
        (Slo(itl_s=0.3), 64),  # 8 would do too, and would keep the prompt waiting
        (Slo(itl_s=0.2), 8),
        (Slo(itl_s=2.0), None),
        (Slo(ttft_s=2.0), 64),  # whole would do too, and would keep the decodes waiting
        (Slo(itl_s=0.3, ttft_s=2.0), 64),
    ],
)
def test_the_size_that_meets_the_slo_is_named(slo: Slo, chosen: int | None) -> None:
    report = report_of(*THREE, slo=slo)

    assert report["choice"] == {"chunk_size": chosen}
    assert f"chunk size {chosen or 'whole'}" in choice_text(report)


def test_an_slo_that_none_meets_is_said() -> None:
    report = report_of(*THREE, slo=Slo(itl_s=0.2, ttft_s=1.0))

    assert report["choice"] is None
    assert choice_text(report) == "No size meets the SLO (p99 gap of 200 ms, TTFT of 1000 ms)."


@pytest.mark.slow
def test_the_report_is_json_and_has_a_table_and_a_figure(tmp_path: Path) -> None:
    report = report_of(*THREE, slo=Slo(itl_s=0.3))

    json.dumps(report, allow_nan=False)
    assert [len(table.rows) for table in tables_of(report)] == [3, 3]
    svg = draw(tmp_path / "chunk", paint_chunk(report))
    for shown in ("64 (good)", "Pareto front", "meets the SLO", "worst gap before"):
        assert shown in svg
