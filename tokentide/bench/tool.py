"""How the long benchmarks run: say the time, measure what is not kept yet, write report, plots and page."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer
from rich.console import Group
from rich.text import Text

from tokentide.bench.data_table import DataTable
from tokentide.bench.html_page import Section
from tokentide.bench.live_progress import LiveProgress
from tokentide.bench.outputs import RunFlags, command_line, write_outputs
from tokentide.bench.rows import Row, Rows
from tokentide.bench.running import run_shown, show, tell
from tokentide.bench.serve import Progress
from tokentide.bench.subject import load_text, subject
from tokentide.bench.target import load_average, machine_facts
from tokentide.bench.trials import TimeLimit, Trial, expectation, left_over

Facts = Mapping[str, Any]
Report = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One long benchmark. Each of its rows names the `model`."""

    name: str  # of its files
    title: str
    settings: Mapping[
        str, Any
    ]  # rows made with others are not mixed in; nothing that only adds rows
    trials: Sequence[Trial[Any]]
    run: Callable[[Rows, TimeLimit, Progress], Coroutine[Any, Any, None]]  # measures what is left
    report: Callable[[Facts, Sequence[Row], int], Report]  # facts, rows, how many are left
    tables: Callable[[Report], list[DataTable]]
    draw: Callable[[Report, Path], list[Section]]  # writes plots into the folder


def run_tool(tool: Tool, flags: RunFlags) -> None:
    """Raises what the run raises, ValueError for kept rows of other settings, typer.Exit."""
    rows = Rows.open(flags.out / f"{tool.name}.jsonl", tool.settings, fresh=flags.fresh)
    if left_over(tool.trials, rows):
        try:
            run_shown(lambda progress: _measure(tool, flags, rows, progress))
        except typer.Exit:  # a stop signal
            num_all = len(tool.trials)
            num_kept = num_all - len(left_over(tool.trials, rows))
            tell(f"stopped: {num_kept} of {num_all} runs are kept; the same command goes on")
            raise
    wanted = [rows[trial.key] for trial in tool.trials if trial.key in rows]
    num_left = len(tool.trials) - len(wanted)
    if num_left:
        tell(f"out of time: {num_left} of {len(tool.trials)} runs left; the same command goes on")
    if not wanted:
        raise typer.Exit(1)
    report = tool.report(_facts(tool, wanted), wanted, num_left)
    tables = [_named(table, report) for table in tool.tables(report)]
    sections = [*tool.draw(report, flags.out), *(_section(table) for table in tables)]
    title = f"{tool.title}: {report['subject']}"
    write_outputs(flags.out, tool.name, report, title, sections)
    load = load_text(wanted, report["machine"])
    about = Text(f"{report['subject']}; {load}" if load else report["subject"])
    show(report, Group(about, *(table.as_rich() for table in tables)), as_json=flags.as_json)
    tell(f"report: {flags.out / tool.name}.html")


def _named(table: DataTable, report: Report) -> DataTable:
    """Whoever copies one table takes along that nothing was computed."""
    simulated = report["simulated"]
    return replace(table, title=f"{table.title}, simulated: {simulated}") if simulated else table


def _section(table: DataTable) -> Section:
    return Section(heading=table.title, table=replace(table, title=""))


async def _measure(tool: Tool, flags: RunFlags, rows: Rows, progress: LiveProgress) -> Report:
    clock = asyncio.get_running_loop().time
    limit = TimeLimit(clock=clock, started_s=clock(), minutes=flags.minutes)
    progress.tell(expectation(tool.trials, rows, limit))
    await tool.run(rows, limit, progress)
    return {}


def _facts(tool: Tool, rows: Sequence[Row]) -> dict[str, Any]:
    machine, model = machine_facts(), rows[-1]["model"]
    settings = dict(tool.settings)
    simulate = settings.get("simulated", "")
    return {
        "command": command_line(),
        "machine": machine | {"load_average_after": load_average()},
        "model": model,
        "simulated": simulate or None,
        "subject": subject(
            model,
            simulate=simulate,
            endpoints=settings.get("endpoints", ()),
            cores=machine["cores"],
        ),
        "settings": settings,
    }
