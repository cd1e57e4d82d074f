"""Throughput and step time over batch size, one curve a context, the knee marked, the roofline dashed."""

from collections.abc import Callable
from typing import Any

COLORS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple")


def paint_knee(report: dict[str, Any]) -> Callable[[Any], None]:
    def paint(figure: Any) -> None:
        throughput, step_time = figure.subplots(1, 2)
        for number, entry in enumerate(report["contexts"]):
            color = COLORS[number % len(COLORS)]
            _paint_curve(throughput, entry, "tokens_per_s", color)
            _paint_curve(step_time, entry, "step_ms", color)
        throughput.set_ylabel("generated tokens/s")
        step_time.set_ylabel("decode step, ms")
        for ax in (throughput, step_time):
            ax.set_xscale("log", base=2)
            sizes = sorted({p["batch_size"] for e in report["contexts"] for p in e["points"]})
            ax.set_xticks(sizes, [str(size) for size in sizes])
            ax.set_yscale("log")
            ax.set_xlabel("sequences in a step")
            ax.grid(alpha=0.3, which="both")
            ax.legend(fontsize=8)
        figure.suptitle(report["subject"])

    return paint


def _paint_curve(ax: Any, entry: dict[str, Any], name: str, color: str) -> None:
    points = entry["points"]
    sizes = [point["batch_size"] for point in points]
    label = f"{entry['context']} tokens of context"
    ax.plot(sizes, [point[name] for point in points], color=color, marker="o", label=label)
    roofline = [point[f"roofline_{name}"] for point in points]
    if all(value is not None for value in roofline):
        ax.plot(sizes, roofline, color=color, linestyle="--", label="its roofline")
    at_knee = [point for point in points if point["batch_size"] == entry["knee"]]
    for point in at_knee:
        place = (point["batch_size"], point[name])
        ax.scatter(*zip(place, strict=True), s=160, facecolors="none", edgecolors=color, zorder=3)
        ax.annotate("knee", place, xytext=(8, -14), textcoords="offset points", color=color)
