"""Figures as PNG and SVG files. What is drawn is the caller's."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

FORMATS = ("png", "svg")
DPI = 150

Paint = Callable[[Any], None]  # draws on a matplotlib figure


def draw(path: Path, paint: Paint, *, width_in: float = 8.0, height_in: float = 5.0) -> str:
    """Writes `path` with .png and .svg. Returns the SVG for an HTML page."""
    import matplotlib as mpl  # noqa: PLC0415 (slow to import)

    mpl.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    settings: Any = {
        "svg.hashsalt": path.name,
        "svg.fonttype": "none",
    }  # the same data, the same file
    with mpl.rc_context(settings):
        figure = pyplot.figure(figsize=(width_in, height_in), layout="constrained")
        try:
            paint(figure)
            for suffix in FORMATS:
                metadata = {"Date": None} if suffix == "svg" else None
                figure.savefig(path.with_suffix(f".{suffix}"), dpi=DPI, metadata=metadata)
        finally:
            pyplot.close(figure)
    text = path.with_suffix(".svg").read_text()
    return text[text.index("<svg") :]
