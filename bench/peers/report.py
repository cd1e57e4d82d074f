"""What was found, as tables and as the section of docs/benchmarks.md."""

from collections.abc import Sequence

from bench.peers.driver import Outcome
from bench.peers.plan import OURS
from bench.peers.rows import MACHINE, MAX_FOREIGN_SHARE, Row
from bench.peers.system import THREADS, System
from bench.peers.table import Grid, agreement_grid, long_grid, main_grid, markdown
from tokentide.bench.target import machine_facts


def document(outcome: Outcome, systems: Sequence[System]) -> tuple[str, list[Grid]]:
    rows = list(outcome.rows.values())
    measured = {row.key.system for row in rows if row.is_good}
    names = [system.name for system in systems if system.name in measured]
    grids = [
        main_grid(rows, names, outcome.limits, read_range(rows)),
        long_grid(rows),
        agreement_grid(rows, names),
    ]
    grids = [grid for grid in grids if grid.lines]
    parts = [_intro(outcome, rows), *(markdown(grid) for grid in grids)]
    parts += [_differences(systems, outcome)]
    return "\n\n".join(parts), grids


def _intro(outcome: Outcome, rows: Sequence[Row]) -> str:
    facts = machine_facts()
    times = sorted(row.at for row in rows if row.at)
    lines = [
        "## `make bench-peers`\n",
        "Each system on the same seeded prompts, exact output lengths, greedy, "
        f"float32 weights, activations and cache, {THREADS} threads.",
        f"Measured on {facts['cpu']}, {facts['cores']} cores, {times[0]} to {times[-1]} (UTC)."
        if times
        else "Nothing is measured yet.",
    ]
    if outcome.machine is not None:
        read, gemm = outcome.machine.read_bytes_per_s / 1e9, outcome.machine.gemm_flops_per_s / 1e9
        lines.append(f"Memory reads {read:.0f} GB/s, large products {gemm:.0f} GFLOP/s.")
    disturbed = sum(row.is_disturbed for row in rows)
    if disturbed:
        share = f"{100 * MAX_FOREIGN_SHARE:.0f} %"
        lines.append(
            f"**{disturbed} of {len(rows)} runs had other processes beside them (over {share} of the "
            "cores): `python -m bench.peers --quiet-only` measures these again.**"
        )
    if stale := stale_text(outcome):
        lines.append(f"**{stale}**")
    return "\n".join(lines)


def stale_text(outcome: Outcome) -> str:
    """Kept rows of ours that other code made; empty if there are none."""
    ours = [row for row in outcome.rows.values() if row.key.system == OURS and row.is_good]
    num_stale = sum(row.code != outcome.code for row in ours)
    if not num_stale:
        return ""
    return (
        f"{num_stale} of {len(ours)} rows of ours are of other code than today's {outcome.code}: "
        "`python -m bench.peers --again ours` measures them anew."
    )


def read_range(rows: Sequence[Row]) -> tuple[float, float] | None:
    """Least and most GB/s that memory gave, once a repeat."""
    found = [row.figures["read_bytes_per_s"] / 1e9 for row in rows if row.key.system == MACHINE]
    return (min(found), max(found)) if found else None


def _differences(systems: Sequence[System], outcome: Outcome) -> str:
    lines = ["### What differs", ""]
    for system in systems:
        facts = _versions(system.name, outcome)
        text = f"- **{system.name}**{facts}: {system.differs}."
        if system.name in outcome.unavailable:
            text += f" Not measured here: {outcome.unavailable[system.name]}"
        lines.append(text)
    failed = {
        f"- {row.key.system}, {row.key.workload}: failed: {row.error}"
        for row in outcome.rows.values()
        if not row.is_good
    }
    return "\n".join([*lines, *sorted(failed)])


def _versions(name: str, outcome: Outcome) -> str:
    for row in reversed(outcome.rows.values()):
        facts = row.figures.get("facts") if row.key.system == name else None
        if facts:
            return f" ({', '.join(f'{key} {value}' for key, value in facts.items())})"
    return ""
