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
    table.add_column("")
    table.add_column("", justify="right")
    table.add_row("steps", f"{fit['num_samples']}")
    table.add_row("of these outliers", f"{fit['num_outliers']}")
    table.add_row("steps left out", f"{fit['num_left_out']}")
    table.add_row("relative error, median", f"{fit['median_error']:.1%}")
    table.add_row("relative error, p95", f"{fit['p95_error']:.1%}")
    for name, value in profile["costs"].items():
        is_time = name.endswith("_ns")
        shown = f"{value / 1e3:,.3f} us" if is_time else f"{value:g}"
        table.add_row(name.removesuffix("_ns").replace("_", " "), shown)
    for name, value in profile["overheads"].items():
        table.add_row(name.removesuffix("_ns").replace("_", " "), f"{value / 1e6:.2f} ms")
    return table
