"""The trade-off of chunk sizes as a picture: gaps of those that decode, against the prompt's wait."""

from collections.abc import Callable
from typing import Any

from tokentide.bench.chunk_report import size_text


def paint_chunk(report: dict[str, Any]) -> Callable[[Any], None]:
    def paint(figure: Any) -> None:
        axes = figure.subplots()
        _paint_sizes(axes, report)
        _draw_limits(axes, report)
        settings = report["settings"]
        axes.set_yscale("log")
        axes.set_xlabel("time to first token of the long prompt, s")
        axes.set_ylabel(f"inter-token gap of the {settings['num_decodes']} decodes, ms")
        axes.set_title(
            f"Chunk sizes: {settings['num_prompt_tokens']}-token prompt, {report['subject']}"
        )
        axes.legend(loc="upper right", fontsize=8)

    return paint


def _paint_sizes(axes: Any, report: dict[str, Any]) -> None:
    sizes = report["sizes"]
    ttfts = [entry["ttft_s"] for entry in sizes]
    worst_ms = [entry["gap_during_s"]["worst"] * 1e3 for entry in sizes]
    p99_ms = [entry["gap_during_s"]["p99"] * 1e3 for entry in sizes]
    axes.scatter(ttfts, worst_ms, color="0.6", marker="^", label="worst gap")
    axes.scatter(ttfts, p99_ms, color="tab:blue", label="p99 gap")
    front = sorted(
        (entry["ttft_s"], entry["gap_during_s"]["p99"] * 1e3)
        for entry in sizes
        if entry["is_on_front"]
    )
    axes.plot(*zip(*front, strict=True), color="tab:blue", alpha=0.6, label="Pareto front")
    for entry, ttft_s, gap_ms in zip(sizes, ttfts, p99_ms, strict=True):
        place, text = (ttft_s, gap_ms), size_text(entry["chunk_size"])
        if entry["is_good"]:
            text += " (good)"
        axes.annotate(text, place, xytext=(6, 6), textcoords="offset points", fontsize=8)
        if report["choice"] and report["choice"]["chunk_size"] == entry["chunk_size"]:
            axes.scatter(
                [ttft_s], [gap_ms], s=220, marker="*", color="tab:green", label="meets the SLO"
            )


def _draw_limits(axes: Any, report: dict[str, Any]) -> None:
    within, slo = report["within"], report["slo"]
    before_ms = report["gap_before_s"]["worst"] * 1e3
    axes.axhline(before_ms, color="0.6", linestyle=":", label="worst gap before")
    axes.axhline(before_ms * within, color="0.6", linestyle="--", label=f"{within:.0f}x of it")
    if slo["itl_s"] is not None:
        axes.axhline(slo["itl_s"] * 1e3, color="tab:green", label="SLO")
    if slo["ttft_s"] is not None:
        axes.axvline(slo["ttft_s"], color="tab:green")
