"""The strategies side by side: bars of medians, with the range of the repeats as a whisker."""

from collections.abc import Callable, Sequence
from typing import Any

from tokentide.bench.arrivals import TOKENS_PER_S as TOKENS_WHILE_ARRIVING
from tokentide.bench.compare_report import TOKENS_PER_S

Panel = tuple[str, Sequence[tuple[str, str]], float]  # title; (label, path)...; factor

CLOSED_THROUGHPUT: Panel = ("generated tokens/s", (("", TOKENS_PER_S),), 1)
OPEN_THROUGHPUT: Panel = (
    "tokens/s while requests arrive",
    (("offered", "arrivals.offered_tokens_per_s"), ("generated", TOKENS_WHILE_ARRIVING)),
    1,
)
PANELS: tuple[Panel, ...] = (
    (
        "end-to-end, s",
        (("p50", "latency_s.end_to_end.p50"), ("p99", "latency_s.end_to_end.p99")),
        1,
    ),
    ("time to first token, s", (("p50", "latency_s.ttft.p50"), ("p99", "latency_s.ttft.p99")), 1),
    ("inter-token latency, ms", (("p50", "latency_s.itl.p50"), ("p99", "latency_s.itl.p99")), 1e3),
    (
        "wasted: held sequence-steps",
        (("", "service.wasted.num_held_sequence_steps"),),
        1,
    ),
    (
        "wasted: tokens",
        (
            ("recomputed", "service.wasted.num_recomputed_tokens"),
            ("replayed", "service.wasted.num_replayed_tokens"),
            ("after a cancel", "service.wasted.num_tokens_after_cancel"),
            ("expired", "service.wasted.num_expired_prompt_tokens"),
        ),
        1,
    ),
)


def paint_compare(report: dict[str, Any]) -> Callable[[Any], None]:
    strategies = report["strategies"]
    is_open_loop = any(TOKENS_WHILE_ARRIVING in entry["figures"] for entry in strategies)
    throughput = OPEN_THROUGHPUT if is_open_loop else CLOSED_THROUGHPUT

    def paint(figure: Any) -> None:
        axes = figure.subplots(2, 3).flat
        for ax, (title, bars, factor) in zip(axes, (throughput, *PANELS), strict=True):
            _paint_panel(ax, strategies, bars, factor)
            ax.set_title(title, fontsize=10)
        figure.suptitle(f"{report['subject']}: the same requests")

    return paint


def _paint_panel(
    ax: Any,
    strategies: Sequence[dict[str, Any]],
    bars: Sequence[tuple[str, str]],
    factor: float,
) -> None:
    width = 0.8 / len(bars)
    for number, (label, path) in enumerate(bars):
        spreads = [entry["figures"].get(path) for entry in strategies]
        middles = [s["median"] * factor if s else 0.0 for s in spreads]
        below = [(s["median"] - s["min"]) * factor if s else 0.0 for s in spreads]
        above = [(s["max"] - s["median"]) * factor if s else 0.0 for s in spreads]
        places = [at + number * width - 0.4 + width / 2 for at in range(len(strategies))]
        ax.bar(places, middles, width, yerr=(below, above), capsize=2, label=label or None)
    ax.set_xticks(
        range(len(strategies)),
        [entry["case"] for entry in strategies],
        rotation=30,
        ha="right",
        fontsize=8,
    )
    ax.set_ylim(bottom=0, top=None if ax.dataLim.y1 > 0 else 1)
    if len(bars) > 1:
        ax.legend(fontsize=7)
