"""`tokentide profile`: fit a running worker's cost model, say how well it fits, write it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from tokentide.bench.live_progress import LiveProgress
from tokentide.bench.running import one_line_errors, run_shown, show
from tokentide.client import Client
from tokentide.commands.operations_client import OperationsClient
from tokentide.simulator.calibration import Calibration, CalibrationTarget, calibrate

REACH_S = 5.0
MEANINGS = {
    "base_ns": "every step: launching, reading the weights",
    "free_tokens": "computed while the weights are read",
    "per_token_ns": "every further token of a step",
    "per_sequence_ns": "every sequence in it",
    "per_sample_ns": "every new token drawn",
    "per_context_ns": "every cached position read",
    "per_attended_ns": "every pair of a query and a key",
    "gap_ns": "between two steps, though the next plan is there",
    "dispatch_ns": "from a result to the plan that is made of it",
    "deliver_ns": "from a step's end to its tokens at the client",
    "submit_ns": "from the client's call to the queue",
    "submit_each_ns": "of that, one request after the other",
}
PORT_DISTANCE = 100  # of a scheduler's two ports, as `tokentide up` chooses them


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFlags:
    out: Path
    operations: str
    client: str
    name: str
    minutes: float
    block_size: int
    seed: int


def run_profile(given: ProfileFlags, *, as_json: bool) -> None:
    with one_line_errors():
        report = run_shown(lambda progress: _run(given, progress))
    show(report, _table(report), as_json=as_json)


async def _run(given: ProfileFlags, progress: LiveProgress) -> dict[str, Any]:
    endpoint = given.client or client_endpoint(given.operations)
    progress.say(f"loads for at most {given.minutes:g} min, then the fit: seconds")
    async with OperationsClient(given.operations) as operations, Client([endpoint]) as client:
        await operations.wait_ready(REACH_S)
        target = CalibrationTarget(
            client=client,
            operations=operations,
            block_size=given.block_size,
            name=given.name,
        )
        found = await calibrate(target, minutes=given.minutes, seed=given.seed, progress=progress)
    given.out.write_text(f"{json.dumps(found.profile.as_dict(), indent=2)}\n")
    return _report(found, given.out)


def client_endpoint(operations: str) -> str:
    """Raises ValueError with one line."""
    host, _, port = operations.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"{operations!r} is no HOST:PORT")
    return f"{host}:{int(port) - PORT_DISTANCE}"


def _report(found: Calibration, out: Path) -> dict[str, Any]:
    return {
        "file": str(out),
        "fit": asdict(found.report) | {"num_left_out": found.num_left_out},
        "profile": found.profile.as_dict(),
    }


def _table(report: dict[str, Any]) -> Table:
    fit, profile = report["fit"], report["profile"]
    table = Table(title=f"{profile['name']}: {profile['model']}, written to {report['file']}")
    table.add_column("what")
    table.add_column("value", justify="right", overflow="fold")
    table.add_column("meaning", overflow="fold")
    table.add_row("steps", f"{fit['num_samples']}", "that the fit is made of")
    table.add_row("of these outliers", f"{fit['num_outliers']}", "")
    table.add_row(
        "steps left out", f"{fit['num_left_out']}", "with others' requests, or not followed"
    )
    table.add_row("error, median", f"{fit['median_error']:.1%}", "of a step's time, predicted")
    table.add_row("error, p95", f"{fit['p95_error']:.1%}", "")
    for name, value in {**profile["costs"], **profile["overheads"]}.items():
        shown = time_text(value) if name.endswith("_ns") else f"{value:,.1f}"
        table.add_row(name.removesuffix("_ns").replace("_", " "), shown, MEANINGS.get(name, ""))
    return table


def time_text(ns: float) -> str:
    """In the unit in which it reads well."""
    for unit, factor in (("ms", 1e6), ("us", 1e3)):
        if ns >= factor:
            return f"{ns / factor:,.2f} {unit}"
    return f"{ns:.2f} ns"
