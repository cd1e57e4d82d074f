"""What a report is about, in a few words: so that no simulated device passes for a measured one."""

from collections.abc import Mapping, Sequence
from typing import Any

FEW = 100  # values: a p99 of fewer is between the two greatest


def subject(model: str, *, simulate: str, endpoints: Sequence[str], cores: int | None) -> str:
    """`simulate`: the profile, empty for a real device. Of another machine the cores are not known."""
    if simulate:
        return f"{model}, simulated: {simulate}"
    if endpoints:
        return f"{model} at {', '.join(endpoints)}"
    return f"{model} on {cores} cores"


def machine_of(report: Mapping[str, Any]) -> dict[str, Any]:
    """Facts for a page; of a simulation they are only those of its host."""
    machine: Mapping[str, Any] = report["machine"]
    if not report.get("simulated"):
        return dict(machine)
    return {"simulated": report["simulated"]} | {f"host {k}": v for k, v in machine.items()}


def load_text(runs: Sequence[Mapping[str, Any]], machine: Mapping[str, Any]) -> str:
    """The machine's load average of one minute: a busy neighbour ruins a figure. Empty if unknown."""
    names = ("load_average_before", "load_average")
    before = [run[name][0] for run in runs for name in names if run.get(name)]
    after = machine.get("load_average_after")
    if not before or not after:
        return ""
    return f"load average {min(before):g} to {max(before):g} before the runs, {after[0]:g} after"


def few_note(num_requests: float) -> str:
    if num_requests >= FEW:
        return ""
    return f"a p99 of {num_requests:.0f} requests is nearly the slowest of them"
