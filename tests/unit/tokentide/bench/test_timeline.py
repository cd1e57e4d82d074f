"""The figure of the timelines, from rows that are made up."""

import json
from pathlib import Path
from typing import Any

import pytest

from tokentide.bench.drawing import draw
from tokentide.bench.timeline_plot import height_in, paint_timeline
from tokentide.bench.timeline_report import seconds_in, tables_of, timeline_report

FACTS = {"command": "c", "machine": {"cores": 2}, "subject": "m on 2 cores", "settings": {}}


def make_request(*segments: tuple[str, float], chunk_s: float | None = 2.0) -> dict[str, Any]:
    at_s, made = 0.0, []
    for kind, length_s in segments:
        made.append({"kind": kind, "start_s": at_s, "end_s": at_s + length_s})
        at_s += length_s
    return {
        "ended_s": at_s,
        "first_chunk_s": chunk_s,
        "chunks": [] if chunk_s is None else [[chunk_s, 1]],
        "segments": made,
    }


def make_row(strategy: str, *requests: dict[str, Any]) -> dict[str, Any]:
    figures = {"throughput": {"generated_tokens_per_s": 12.5}}
    settings = f'{{"name": "{strategy.partition(":")[0]}"}}'
    return {
        "strategy": strategy,
        "settings": settings,
        "requests": list(requests),
        "figures": figures,
    }


ROWS = [
    make_row("continuous", make_request(("waiting", 1), ("prefill", 1), ("decode", 2))),
    make_row(
        "static:2",
        make_request(("waiting", 1), ("prefill", 1), ("decode", 2), ("held", 3)),
        make_request(chunk_s=None),  # failed before any step
    ),
]


def test_the_table_sums_what_requests_spent_in_what() -> None:
    report = timeline_report(FACTS, ["static:2", "dynamic", "continuous"], ROWS, 1)

    (table,) = tables_of(report)

    json.dumps(report, allow_nan=False)
    assert table.columns[1:] == ["static:2", "continuous"]
    assert "static:2: answers leave at the batch's end" in table.note
    assert ["held, s", "3.00", "0.00"] in table.rows
    assert ["all answered after, s", "7.00", "4.00"] in table.rows
    assert seconds_in(ROWS[0]["requests"])["decode"] == 2


@pytest.mark.slow
def test_the_figure_has_a_panel_a_strategy_and_a_legend(tmp_path: Path) -> None:
    report = timeline_report(FACTS, ["static:2", "continuous"], ROWS, 0)

    svg = draw(tmp_path / "timeline", paint_timeline(report), height_in=height_in(report))

    for shown in ("static:2: all answered after 7.00 s", "continuous: all answered", "held"):
        assert shown in svg
