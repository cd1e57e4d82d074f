"""What a chunk size costs those that decode, and what it costs the long prompt. Pure arithmetic."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Protocol

from rich.table import Table

from tokentide.bench.statistics import PERCENTILE_METHOD, Summary, median, ratio

SCHEMA = "tokentide.bench.chunk/1"
WITHIN = 3.0  # times the gap before, and times whole prefill's time to first token

METHODS = {
    "percentiles": PERCENTILE_METHOD,
    "gap": "time between two chunks of one decoding stream at the client, nothing spread",
    "before": "gaps that began after the last decode had its first token and ended before the long prompt left",
    "during": "gaps that overlap the time from the long prompt's departure to its first token",
    "ttft": "of the long prompt, at the client, with the decodes running",
    "over repeats": "medians of each trial's value",
    "gap before, to compare with": "median over all trials: before the prompt comes, no size matters",
}


class Times(Protocol):
    """One trial: see chunk.Trial."""

    @property
    def size(self) -> int: ...
    @property
    def streams(self) -> Sequence[Sequence[float]]: ...
    @property
    def before_s(self) -> float: ...
    @property
    def sent_s(self) -> float: ...
    @property
    def first_token_s(self) -> float: ...
    @property
    def load_average(self) -> Sequence[float]: ...


def chunk_report(facts: Mapping[str, Any], trials: Sequence[Times]) -> dict[str, Any]:
    runs = [_run(trial) for trial in trials]
    sizes = [_over_repeats(size, runs) for size in _sizes(runs)]
    whole = next((entry for entry in sizes if entry["chunk_size"] is None), None)
    before = {
        name: median(run["gap_before_s"][key] for run in runs)
        for name, key in (("p50", "p50"), ("worst", "max"))
    }
    for entry in sizes:
        _judge(entry, before["worst"], whole)
    return {
        "schema": SCHEMA,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        **facts,
        "within": WITHIN,
        "gap_before_s": before,
        "methods": METHODS,
        "sizes": sizes,
        "good_sizes": [entry["chunk_size"] for entry in sizes if entry["is_good"]],
        "runs": runs,
    }


def table_of(report: dict[str, Any]) -> Table:
    title = (
        f"{report['num_prompt_tokens']}-token prompt beside {report['num_decodes']} decodes, "
        f"{report['model']}, medians of {report['repeat']}"
    )
    caption = (
        f"good: worst gap within {report['within']:.0f}x of the worst before "
        f"({report['gap_before_s']['worst'] * 1e3:.0f} ms, median of all trials), and TTFT within "
        f"{report['within']:.0f}x of whole prefill's"
    )
    table = Table(title=title, caption=caption)
    heads = ("chunk", "gap before, ms\np50", "\nworst", "during\np50", "\np99", "\nworst")
    for head in (*heads, "worst /\nbefore", "TTFT, s", "TTFT /\nwhole", "good"):
        table.add_column(head, justify="right")
    for entry in report["sizes"]:
        keys = (("before", "p50"), ("before", "worst"), *(("during", k) for k in DURING))
        gaps_ms = [entry[f"gap_{part}_s"][key] * 1e3 for part, key in keys]
        table.add_row(
            str(entry["chunk_size"] or "whole"),
            *(f"{value:.0f}" for value in gaps_ms),
            _ratio_text(entry["worst_gap_ratio"]),
            f"{entry['ttft_s']:.2f}",
            _ratio_text(entry["ttft_ratio"]),
            "yes" if entry["is_good"] else "",
        )
    return table


def _ratio_text(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


PARTS = ("before", "during")
DURING = ("p50", "p99", "worst")


def _run(trial: Times) -> dict[str, Any]:
    before = Summary.of(_gaps(trial, trial.before_s, trial.sent_s, is_inside=True))
    during = Summary.of(_gaps(trial, trial.sent_s, trial.first_token_s, is_inside=False))
    return {
        "chunk_size": trial.size or None,
        "gap_before_s": before.as_dict(),
        "gap_during_s": during.as_dict(),
        "ttft_s": trial.first_token_s - trial.sent_s,
        "load_average": list(trial.load_average),
    }


def _gaps(trial: Times, start_s: float, end_s: float, *, is_inside: bool) -> Iterator[float]:
    """Gaps inside a span of time, or all that overlap it."""
    for times in trial.streams:
        for earlier, later in pairwise(times):
            inside = start_s <= earlier and later <= end_s
            if inside or (not is_inside and earlier < end_s and later > start_s):
                yield later - earlier


def _sizes(runs: Sequence[dict[str, Any]]) -> list[int | None]:
    """Ascending, whole prefill last."""
    sizes = {run["chunk_size"] for run in runs}
    return [*sorted(size for size in sizes if size), *([None] if None in sizes else [])]


def _over_repeats(size: int | None, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    mine = [run for run in runs if run["chunk_size"] == size]
    entry: dict[str, Any] = {"chunk_size": size}
    for part in PARTS:
        gaps = [run[f"gap_{part}_s"] for run in mine]
        named = {"p50": "p50", "p99": "p99", "worst": "max"}
        entry[f"gap_{part}_s"] = {
            name: median(gap[key] for gap in gaps) for name, key in named.items()
        }
    ttfts = [run["ttft_s"] for run in mine]
    entry["ttft_s"] = median(ttfts)
    entry["ttft_range_s"] = [min(ttfts), max(ttfts)]
    entry["worst_gap_range_s"] = [
        pick(r["gap_during_s"]["max"] for r in mine) for pick in (min, max)
    ]
    return entry


def _judge(entry: dict[str, Any], worst_before_s: float, whole: dict[str, Any] | None) -> None:
    gap_ratio = ratio(entry["gap_during_s"]["worst"], worst_before_s)
    ttft_ratio = ratio(entry["ttft_s"], whole["ttft_s"]) if whole else None
    entry["worst_gap_ratio"], entry["ttft_ratio"] = gap_ratio, ttft_ratio
    entry["is_good"] = bool(
        gap_ratio and ttft_ratio and gap_ratio <= WITHIN and ttft_ratio <= WITHIN
    )
