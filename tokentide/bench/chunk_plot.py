"""The trade-off of chunk sizes as a picture: worst gap of those that decode, against the prompt's wait."""

from pathlib import Path
from typing import Any

FORMATS = ("png", "svg")


def plot(report: dict[str, Any], folder: Path) -> None:
    """Writes chunk.png and chunk.svg."""
    import matplotlib as mpl  # noqa: PLC0415 (slow to import)

    mpl.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    sizes = report["sizes"]
    ttfts = [entry["ttft_s"] for entry in sizes]
    worst_ms = [entry["gap_during_s"]["worst"] * 1e3 for entry in sizes]
    axes.plot(ttfts, worst_ms, color="0.7", zorder=1)
    for entry, ttft_s, gap_ms in zip(sizes, ttfts, worst_ms, strict=True):
        color = "tab:green" if entry["is_good"] else "tab:red"
        axes.scatter([ttft_s], [gap_ms], color=color, zorder=2)
        label = str(entry["chunk_size"] or "whole")
        axes.annotate(label, (ttft_s, gap_ms), xytext=(6, 6), textcoords="offset points")
    _draw_limits(axes, report)
    axes.set_yscale("log")
    axes.set_xlabel("time to first token of the long prompt, s")
    axes.set_ylabel(f"worst inter-token gap of the {report['num_decodes']} decodes, ms")
    axes.set_title(
        f"Chunk sizes: {report['num_prompt_tokens']}-token prompt, {report['model']}, "
        f"{report['machine']['cores']} cores"
    )
    axes.legend(loc="upper right")
    for suffix in FORMATS:
        figure.savefig(folder / f"chunk.{suffix}", dpi=150)
    pyplot.close(figure)


def _draw_limits(axes: Any, report: dict[str, Any]) -> None:
    sizes, within = report["sizes"], report["within"]
    before_ms = report["gap_before_s"]["worst"] * 1e3
    axes.axhline(before_ms, color="tab:blue", linestyle=":", label="worst gap before")
    axes.axhline(
        before_ms * within, color="tab:blue", linestyle="--", label=f"{within:.0f}x the gap before"
    )
    whole = [entry["ttft_s"] for entry in sizes if entry["chunk_size"] is None]
    if whole and max(entry["ttft_s"] for entry in sizes) > whole[0] * within / 2:
        axes.axvline(
            whole[0] * within,
            color="tab:orange",
            linestyle="--",
            label=f"{within:.0f}x whole's TTFT",
        )
