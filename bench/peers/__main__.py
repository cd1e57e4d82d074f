"""`python -m bench.peers`: the same seeded workloads for us and for every peer that runs here.

Finished measurements are kept and resumed; `--again ours` measures ours anew, `--again all` everything.
"""

# ruff: noqa: PLR0917 (a command's arguments are its flags)

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bench.peers import check, table
from bench.peers.driver import Options, Outcome, run
from bench.peers.report import document
from bench.peers.rows import default_path, forget
from bench.peers.system import THREADS
from bench.peers.systems import all_systems
from bench.peers.workloads import BY_NAME
from tokentide.bench.flags import names
from tokentide.bench.running import one_line_errors, run_shown
from tokentide.models import packaged_model_dir

MIN_WIDTH = 180
SYSTEMS = {system.name: system for system in all_systems()}


def main(
    only: Annotated[str, typer.Option(help=f"of {', '.join(SYSTEMS)}")] = "",
    workloads: Annotated[str, typer.Option(help=f"of {', '.join(BY_NAME)}")] = "",
    repeat: Annotated[int, typer.Option(help="times each; medians need three")] = 3,
    minutes: Annotated[
        float, typer.Option(help="begin nothing after so long, installations apart")
    ] = 90.0,
    again: Annotated[str, typer.Option(help="systems whose rows are forgotten; or all")] = "",
    step_tokens: Annotated[str, typer.Option(help="instead of defaults: vllm=512,ours=256")] = "",
    sweep: Annotated[str, typer.Option(help="workloads to sweep step tokens on besides long")] = "",
    rate: Annotated[float | None, typer.Option(help="arrivals/s; else from the capacity")] = None,
    rows: Annotated[Path | None, typer.Option(help="file of finished measurements")] = None,
    docs: Annotated[Path | None, typer.Option(help="file whose figures are replaced")] = None,
    quiet_only: Annotated[
        bool, typer.Option(help="measure again what other processes disturbed")
    ] = False,
    only_check: Annotated[bool, typer.Option("--check", help="one short prompt each")] = False,
) -> None:
    """Measure us against the peers on this machine."""
    os.environ["OMP_NUM_THREADS"] = str(THREADS)  # for what takes no flag
    with one_line_errors():
        rows_path = rows or default_path()
        forget(rows_path, names(again))
        options = Options(
            model_dir=packaged_model_dir(progress=Console(stderr=True).print),
            rows_path=rows_path,
            log_dir=rows_path.parent / "logs",
            systems=_picked(SYSTEMS, only),
            workloads=_picked(BY_NAME, workloads),
            repeat=repeat,
            minutes=minutes,
            step_tokens=_step_tokens(step_tokens),
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

        run_shown(work)
        _show(outcomes[0], docs)


def _show(outcome: Outcome, docs: Path | None) -> None:
    text, grids = document(outcome, list(SYSTEMS.values()))
    console = Console()
    console.width = max(console.width, MIN_WIDTH)  # a cut table helps nobody
    for grid in grids:
        console.print(table.rich_table(grid))
    for name, why in outcome.unavailable.items():
        console.print(f"{name}: not measured: {why}")
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
    pairs = [pair.partition("=") for pair in names(given)]
    return {name: int(number) for name, _, number in pairs}


if __name__ == "__main__":
    typer.run(main)
