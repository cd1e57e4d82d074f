"""The timelines of several strategies as one report, with how long requests spent in what. Pure arithmetic."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tokentide.bench.data_table import DataTable
from tokentide.bench.rows import Row
from tokentide.bench.strategies import held_note, holds_answers
from tokentide.bench.timeline_segments import Kind

SCHEMA = "tokentide.bench.timeline/1"
METHODS = {
    "segments": "from step records: a step ended when its record came and began its own duration before; "
    "the pause before a step that follows directly is counted to it",
    "held": "static and dynamic: from a request's last step to the last step of its batch",
    "first_chunk_s, ended_s": "at the client",
}


def timeline_report(
    facts: Mapping[str, Any], labels: Sequence[str], rows: Sequence[Row], num_left: int
) -> dict[str, Any]:
    by_label = {row["strategy"]: row for row in rows}
    strategies = [by_label[label] for label in labels if label in by_label]
    return {
        "schema": SCHEMA,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        **facts,
        "num_runs_left": num_left,
        "methods": METHODS,
        "strategies": [{**row, "seconds_in": seconds_in(row["requests"])} for row in strategies],
    }


def seconds_in(requests: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Summed over the requests, by kind of segment."""
    sums = dict.fromkeys((kind.value for kind in Kind), 0.0)
    for request in requests:
        for segment in request["segments"]:
            sums[segment["kind"]] += segment["end_s"] - segment["start_s"]
    return sums


def tables_of(report: dict[str, Any]) -> list[DataTable]:
    strategies = report["strategies"]
    lines = [
        [f"{kind.value}, s", *(f"{entry['seconds_in'][kind.value]:.2f}" for entry in strategies)]
        for kind in Kind
    ]
    lines.append(["all answered after, s", *(f"{_end_s(entry):.2f}" for entry in strategies)])
    rates = [e["figures"]["throughput"]["generated_tokens_per_s"] for e in strategies]
    lines.append(["generated tokens/s", *("" if r is None else f"{r:.1f}" for r in rates)])
    note = f"{len(strategies[0]['requests'])} requests, the same for each strategy"
    if held := held_note(e["strategy"] for e in strategies if holds_answers(e["settings"])):
        note += f"; {held}"
    return [
        DataTable(
            columns=["summed over the requests", *(entry["strategy"] for entry in strategies)],
            rows=lines,
            title="Where the requests' time went",
            note=note,
        )
    ]


def _end_s(entry: Mapping[str, Any]) -> float:
    return max((request["ended_s"] for request in entry["requests"]), default=0.0)
