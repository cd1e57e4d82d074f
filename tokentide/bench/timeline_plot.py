"""The figure of the continuous-batching article, from a real run: one bar a request, one panel a strategy."""

from collections.abc import Callable
from typing import Any

from tokentide.bench.timeline_segments import Kind

STYLES: dict[Kind, dict[str, Any]] = {
    Kind.WAITING: {"facecolor": "#e3e3e3", "edgecolor": "none"},
    Kind.PREFILL: {"facecolor": "#f2b134", "edgecolor": "none"},
    Kind.DECODE: {"facecolor": "#3b7dd8", "edgecolor": "none"},
    Kind.PASSED_OVER: {"facecolor": "#cfe0f5", "edgecolor": "none"},
    Kind.HELD: {"facecolor": "white", "edgecolor": "#d33f49", "hatch": "////", "linewidth": 0.6},
}
HEIGHT = 0.8  # of a bar, of the place it has
PANEL_IN = 0.19  # inches a request


def height_in(report: dict[str, Any]) -> float:
    return sum(1.0 + PANEL_IN * len(entry["requests"]) for entry in report["strategies"])


def paint_timeline(report: dict[str, Any]) -> Callable[[Any], None]:
    strategies = report["strategies"]

    def paint(figure: Any) -> None:
        panels = figure.subplots(len(strategies), 1, sharex=True, squeeze=False)[:, 0]
        for ax, entry in zip(panels, strategies, strict=True):
            _paint_panel(ax, entry)
        panels[-1].set_xlabel("seconds")
        figure.legend(handles=_legend(), loc="outside lower center", ncols=4, fontsize=8)
        figure.suptitle(report["subject"])

    return paint


def _paint_panel(ax: Any, entry: dict[str, Any]) -> None:
    requests = entry["requests"]
    for row, request in enumerate(requests):
        for segment in request["segments"]:
            bar = [(segment["start_s"], segment["end_s"] - segment["start_s"])]
            ax.broken_barh(bar, (row - HEIGHT / 2, HEIGHT), **STYLES[Kind(segment["kind"])])
    first = [(r["first_chunk_s"], row) for row, r in enumerate(requests) if r["chunks"]]
    ended = [(request["ended_s"], row) for row, request in enumerate(requests)]
    for points, marker in ((first, "|"), (ended, "o")):
        if points:
            times, rows = zip(*points, strict=True)
            ax.scatter(times, rows, marker=marker, s=14, color="black", linewidths=1, zorder=3)
    end_s = max(request["ended_s"] for request in requests)
    ax.axvline(end_s, color="0.4", linestyle=":", linewidth=1)
    ax.set_title(f"{entry['strategy']}: all answered after {end_s:.2f} s", fontsize=10, loc="left")
    ax.set_ylim(len(requests) - 0.4, -0.6)  # the first request on top
    ax.set_yticks([])
    ax.set_ylabel(f"{len(requests)} requests", fontsize=8)


def _legend() -> list[Any]:
    from matplotlib.lines import Line2D  # noqa: PLC0415 (slow to import)
    from matplotlib.patches import Patch  # noqa: PLC0415

    patches = [Patch(label=kind.value, **style) for kind, style in STYLES.items()]
    marks = {"|": "first tokens reach the client", "o": "answer complete"}
    lines = [
        Line2D([], [], marker=marker, linestyle="none", color="black", markersize=5, label=label)
        for marker, label in marks.items()
    ]
    return [*patches, *lines]
