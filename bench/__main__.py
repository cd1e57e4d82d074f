"""Quick guards, `make bench`: each hot part beside something real from the same run, in one table.

Exits with 1 if a plan for a large batch takes longer than its limit, or if a hot part has lost more than
half of its stored gain (`guards`).
"""

import argparse
import os
import sys

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the worker; read when torch is loaded

from rich.console import Console
from rich.table import Table

from bench import engine, guards, planner, store
from bench.guards import Gain
from tokentide.models import packaged_model_dir

PLAN_LIMIT_MS = 2.0  # 256 running, window 64, 1,000 queued


def main() -> int:
    is_to_be_stored = _arguments().store
    notes = Console(stderr=True)
    table = Table(title=f"Quick guards, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for head in ("what", "ms", "against", "ms", "ratio"):
        table.add_column(head, justify="right" if head in ("ms", "ratio") else "left")
    notes.print("decode steps (loads the packaged model)")
    model_dir = packaged_model_dir(progress=notes.print)
    steps = list(engine.measure(model_dir))
    for row in steps:
        _add(table, row.name, row.step_ms, "torch's weight products", row.reference_ms)
    decode_ms = steps[-1].step_ms
    notes.print("plans")
    plans = list(planner.measure())
    for plan in plans:
        _add(table, plan.name, plan.median_ms, "limit", PLAN_LIMIT_MS)
    largest = max(plans, key=lambda plan: plan.median_ms)
    _add(table, "slowest plan", largest.median_ms, "decode step, 32", decode_ms)
    notes.print("commits (starts a store)")
    commit = store.measure()
    name = f"commit of {store.NUM_ROWS} rows, on disk"
    _add(table, name, commit.commit_ms, "one bare SET", commit.set_ms)
    _add(table, name, commit.commit_ms, "decode step, 32", decode_ms)
    Console().print(table)
    gains = [Gain(row.name, row.step_ms, row.reference_ms) for row in steps]
    gains.append(Gain("plan, against a decode step of 32", largest.median_ms, decode_ms))
    gains.append(Gain("commit, against a decode step of 32", commit.commit_ms, decode_ms))
    if is_to_be_stored:
        guards.write(gains)
        return 0
    lost = guards.losses(gains, guards.read())
    for line in lost:
        print(f"error: {line}", file=sys.stderr)
    if largest.median_ms >= PLAN_LIMIT_MS:
        print(f"error: a plan took {largest.median_ms:.2f} ms", file=sys.stderr)
        return 1
    return 1 if lost else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--store",
        action="store_true",
        help="write this run's ratios over those of bench/ratios.json, which the guards compare with",
    )
    return parser.parse_args()


def _add(table: Table, name: str, ms: float, against: str, against_ms: float) -> None:
    table.add_row(name, f"{ms:.3f}", against, f"{against_ms:.3f}", f"{ms / against_ms:.2f}")


if __name__ == "__main__":
    sys.exit(main())
