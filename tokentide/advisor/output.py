"""Shows the advice, and writes its JSON, plots and page."""

from dataclasses import replace

import typer
from rich.console import Group
from rich.text import Text

from tokentide.advisor.advise import NAME, run_advise
from tokentide.advisor.options import AdviseFlags, advise_options
from tokentide.advisor.plot import paint_advice
from tokentide.advisor.report import Report
from tokentide.advisor.report_text import headline, slo_text, tables_of
from tokentide.bench.drawing import draw
from tokentide.bench.html_page import Section
from tokentide.bench.outputs import RunFlags, write_outputs
from tokentide.bench.running import run_shown, show, tell

TITLE = "Advice on batching"
TEXT = (
    "Each point is one setting in the offline simulator. Left of the dashed line the SLO is met; on the "
    "front are those that no other beats in tokens/s, time to first token and gaps together."
)


def advise(given: AdviseFlags, flags: RunFlags) -> None:
    """Raises what the run raises; ValueError, SettingError for flags that contradict each other."""
    options = advise_options(given)
    try:
        report = run_shown(lambda progress: run_advise(options, flags, progress))
    except typer.Exit:  # a stop signal
        tell(f"stopped: what was found is kept in {flags.out}; the same command goes on")
        raise
    _write(report, flags)
    tables = [table.as_rich() for table in tables_of(report)]
    show(report, Group(Text(headline(report)), *tables), as_json=flags.as_json)
    if not flags.as_json:
        print(f"\n{report['recommendation']['command']}")  # one line, to copy
    tell(f"report: {flags.out / NAME}.html")


def _write(report: Report, flags: RunFlags) -> None:
    svg = draw(flags.out / NAME, paint_advice(report), width_in=12, height_in=5)
    command = report["recommendation"]["command"]
    advice = f"{headline(report)} To set it: {command}"
    sections = [
        Section(heading="Advice", text=advice),
        Section(heading=f"The SLO: {slo_text(report)}", text=TEXT, svg=svg),
    ]
    for table in tables_of(report):
        sections.append(Section(heading=table.title, table=replace(table, title="")))
    write_outputs(flags.out, NAME, report, TITLE, sections)
