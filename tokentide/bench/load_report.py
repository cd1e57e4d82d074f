"""Runs loads, and shows their report; of a run that was stopped what there is of it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import typer

from tokentide.bench.running import Run, run_shown, show, tell
from tokentide.bench.serve import ServeOptions
from tokentide.bench.summary import table_of

Report = dict[str, Any]


def run_and_show(options: ServeOptions, run: Callable[[ServeOptions], Run], as_json: bool) -> None:
    """Raises typer.Exit: by a stop signal, or with 1 if not one request was served."""
    kept: list[Report] = []

    def keep(report: Report) -> None:
        kept[:] = [report]
        options.keep(report)

    try:
        report = run_shown(run(replace(options, keep=keep)))
    except typer.Exit:
        if kept:
            show(kept[0], table_of(kept[0]), as_json=as_json)
        num_runs = len(kept[0]["runs"]) if kept else 0
        tell(f"stopped after {num_runs} of {num_cases(options)} runs")
        raise
    show(report, table_of(report), as_json=as_json)
    if not any(one["statuses"].get("OK") for one in report["runs"]):
        raise typer.Exit(1)


def num_cases(options: ServeOptions) -> int:
    return options.repeat * (1 if options.is_open_loop else len(options.concurrencies))
