"""`python -m bench.peers`: the same seeded workloads for us and for every peer that runs here.

Finished measurements are kept and resumed; `--again ours` measures ours anew, `--again all` everything.
"""

# ruff: noqa: PLR0917 (a command's arguments are its flags)

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bench.peers import check, table
from bench.peers.driver import Options, Outcome, run
from bench.peers.report import document, stale_text
from bench.peers.rows import MACHINE, default_path, forget
from bench.peers.system import THREADS, System
from bench.peers.systems import all_systems
from bench.peers.workloads import BY_NAME
from tokentide.bench.flags import names
from tokentide.bench.running import one_line_errors, run_shown, tell
from tokentide.commands.plain_app import plain_app
from tokentide.models import packaged_model_dir

MIN_WIDTH = 180
SYSTEMS = {system.name: system for system in all_systems()}


app = plain_app()


@app.command()
def main(
    only: Annotated[str, typer.Option(help=f"of {', '.join(SYSTEMS)}")] = "",
    workloads: Annotated[str, typer.Option(help=f"of {', '.join(BY_NAME)}")] = "",
    repeat: Annotated[int, typer.Option(min=1, help="times each; medians need three")] = 3,
    minutes: Annotated[
        float, typer.Option(min=0.0, help="begin nothing after so long, installations apart")
    ] = 90.0,
    again: Annotated[str, typer.Option(help="systems whose rows are forgotten; or all")] = "",
    step_tokens: Annotated[str, typer.Option(help="instead of defaults: vllm=512,ours=256")] = "",
    sweep: Annotated[str, typer.Option(help="workloads to sweep step tokens on besides long")] = "",
    rate: Annotated[float | None, typer.Option(help="arrivals/s; else from the capacity")] = None,
    rows: Annotated[Path | None, typer.Option(help="file of finished measurements")] = None,
    docs: Annotated[
        Path | None, typer.Option(help="write the tables between the markers of this file")
    ] = None,
    quiet_only: Annotated[
        bool, typer.Option(help="measure again what other processes disturbed")
    ] = False,
    only_check: Annotated[bool, typer.Option("--check", help="one short prompt each")] = False,
) -> None:
    """Measure us against the peers on this machine."""
    os.environ["OMP_NUM_THREADS"] = str(THREADS)  # for what takes no flag
    with one_line_errors():
        if docs is not None and (only or workloads):
            raise ValueError("--docs takes everything: leave out --only and --workloads")
        chosen_tokens = _step_tokens(step_tokens)
        systems = _picked(SYSTEMS, only)
        rows_path = rows or default_path()
        forget(rows_path, _to_forget(again))
        options = Options(
            model_dir=packaged_model_dir(progress=Console(stderr=True).print),
            rows_path=rows_path,
            log_dir=rows_path.parent / "logs",
            systems=systems,
            workloads=_picked(BY_NAME, workloads),
            repeat=repeat,
            minutes=minutes,
            step_tokens=chosen_tokens,
            swept=tuple(workload.name for workload in _picked(BY_NAME, sweep) if sweep),
            rate=rate,
            is_quiet_only=quiet_only,
        )
        if only_check:
            print(check.text_of(run_shown(lambda progress: check.check(options, progress))))
            return
        outcomes: list[Outcome] = []

        async def work(progress: Any) -> dict[str, Any]:
            outcomes.append(await run(options, progress))
            return {"done": True}

        try:
            run_shown(work)
        except typer.Exit:  # a stop signal
            tell("stopped: what is measured is kept; the same command goes on")
            raise
        _show(outcomes[0], systems, docs)


def _show(outcome: Outcome, systems: Sequence[System], docs: Path | None) -> None:
    text, grids = document(outcome, systems)
    console = Console()
    console.width = max(console.width, MIN_WIDTH)  # a cut table helps nobody
    for grid in grids:
        console.print(table.rich_table(grid))
    for name, why in outcome.unavailable.items():
        console.print(f"{name}: not measured: {why}")
    if stale := stale_text(outcome):
        console.print(stale)
    if outcome.num_missing:
        console.print(f"{outcome.num_missing} measurements are missing: run it again to resume")
    if docs is not None:
        table.write_section(docs, text)


def _picked(known: dict[str, Any], given: str) -> tuple[Any, ...]:
    """Those named, in their own order; all without a name."""
    unknown = set(names(given)) - set(known)
    if unknown:
        raise ValueError(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    return tuple(each for name, each in known.items() if not given or name in names(given))


def _step_tokens(given: str) -> dict[str, int]:
    """Raises ValueError with one line."""
    chosen: dict[str, int] = {}
    for pair in names(given):
        name, _, number = pair.partition("=")
        if name not in SYSTEMS or not number.isdecimal() or int(number) < 1:
            known = ", ".join(SYSTEMS)
            raise ValueError(
                f"--step-tokens {pair!r}: a system and tokens, as vllm=512; of {known}"
            )
        chosen[name] = int(number)
    return chosen


def _to_forget(again: str) -> tuple[str, ...]:
    """Raises ValueError with one line."""
    unknown = set(names(again)) - {*SYSTEMS, MACHINE, "all"}
    if unknown:
        raise ValueError(f"--again {', '.join(sorted(unknown))}: of {', '.join(SYSTEMS)}, all")
    return names(again)


if __name__ == "__main__":
    app(prog_name="python -m bench.peers")
