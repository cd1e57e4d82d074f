"""`bench timeline` put together: from its flags to its report."""

from pathlib import Path

from tokentide.bench.compare import CompareOptions
from tokentide.bench.compare_tool import load_settings
from tokentide.bench.drawing import draw
from tokentide.bench.html_page import Section
from tokentide.bench.timeline import run_timeline, timeline_trials
from tokentide.bench.timeline_plot import height_in, paint_timeline
from tokentide.bench.timeline_report import tables_of, timeline_report
from tokentide.bench.tool import Report, Tool

TITLE = "One bar a request: static, dynamic and continuous batching"
TEXT = (
    "The same requests and arrivals through each strategy on the same engine. Grey: waiting in the queue; "
    "yellow: its prompt is computed; blue: it decodes; hatched: it has ended, but its place in the batch stays "
    "empty until the batch ends; light blue: its worker ran steps without it. Black: its first tokens (|) and "
    "its complete answer (o) at the client."
)


def timeline_tool(options: CompareOptions) -> Tool:
    labels = [strategy.label for strategy in options.strategies]
    return Tool(
        name="timeline",
        title=TITLE,
        settings=load_settings(options.serve),
        trials=timeline_trials(options),
        run=lambda rows, limit, progress: run_timeline(options, rows, limit, progress),
        report=lambda facts, rows, left: timeline_report(facts, labels, rows, left),
        tables=tables_of,
        draw=_draw,
    )


def _draw(report: Report, folder: Path) -> list[Section]:
    svg = draw(
        folder / "timeline", paint_timeline(report), width_in=11, height_in=height_in(report)
    )
    return [Section(heading="Requests over time", text=TEXT, svg=svg)]
