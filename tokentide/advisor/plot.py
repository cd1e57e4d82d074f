"""Every setting that was simulated, as tokens/s against its times: where the front is, what was chosen."""

from collections.abc import Callable, Mapping
from typing import Any

from tokentide.advisor.report_text import now_text

COLOURS = {"continuous": "tab:blue", "static": "tab:orange", "dynamic": "tab:purple"}
WIDE = 10  # times the least: then on a scale of logarithms
PANELS = (("ttft_s", "TTFT"), ("itl_s", "ITL"))


def paint_advice(report: Mapping[str, Any]) -> Callable[[Any], None]:
    def paint(figure: Any) -> None:
        axes = figure.subplots(1, 2)
        for ax, (name, label) in zip(axes, PANELS, strict=True):
            _paint_panel(ax, report, name)
            ax.set_xlabel(f"p{report['slo']['percentile']:g} {label}, ms")
            ax.set_ylabel("generated tokens/s")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, fontsize=8, loc="outside lower center", ncols=8)
        figure.suptitle(f"{report['model']}: settings simulated as {report['settings']['profile']}")

    return paint


def _paint_panel(ax: Any, report: Mapping[str, Any], name: str) -> None:
    for strategy, colour in COLOURS.items():
        entries = [e for e in report["candidates"] if e["settings"]["name"] == strategy]
        ax.scatter(*_points(entries, name), s=14, alpha=0.6, color=colour, label=strategy)
    front = report["front"]
    ax.scatter(
        *_points(front, name), s=44, facecolors="none", edgecolors="0.3", label="on the front"
    )
    current, best = report["current"], report["recommendation"]
    if current["figures"] is not None:
        ax.scatter(*_points([current], name), s=90, marker="D", color="0.4", label=now_text(report))
    chosen = "recommended" if report["is_possible"] else "closest"
    ax.scatter(*_points([best], name), s=200, marker="*", color="tab:green", label=chosen)
    measured = [{"figures": e["measured"]} for e in report["verified"]]
    if measured:
        ax.scatter(*_points(measured, name), s=70, marker="x", color="black", label="measured")
    limit_s = report["slo"][name]
    if limit_s is not None:
        ax.axvline(limit_s * 1e3, color="tab:green", linestyle="--", label="SLO")
    low, high = ax.dataLim.x0, ax.dataLim.x1
    if 0 < low < high / WIDE:
        ax.set_xscale("log")


def _points(entries: Any, name: str) -> tuple[list[float], list[float]]:
    """Times in ms, tokens/s; those without such a time are not to be drawn."""
    known = [e["figures"] for e in entries if e["figures"][name]]
    known = [figures for figures in known if figures["tokens_per_s"] is not None]
    return [f[name] * 1e3 for f in known], [f["tokens_per_s"] for f in known]
