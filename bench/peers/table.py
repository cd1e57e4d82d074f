"""The bench's tables: for the terminal, and as Markdown for docs/benchmarks.md."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from bench.peers.plan import OURS
from bench.peers.rows import Row
from bench.peers.summary import (
    Cell,
    Metric,
    agreement,
    best_peer,
    cells,
    front,
    points,
    ratio_to_best,
)
from bench.peers.workloads import BY_NAME

BEGIN, END = "<!-- bench-peers: begin -->", "<!-- bench-peers: end -->"
LONG = "long"
RATE = ("tokens_per_s",)


def _latency(label: str, *path: str, factor: float = 1.0, decimals: int = 1) -> Metric:
    return Metric("poisson", label, ("latency_s", *path), factor, decimals, is_less_better=True)


METRICS: tuple[Metric, ...] = (
    *(Metric(name, "tokens/s", RATE) for name in ("one", "32", "64", "prefix")),
    _latency("TTFT p50, ms", "ttft", "p50", factor=1e3, decimals=0),
    _latency("TTFT p90, ms", "ttft", "p90", factor=1e3, decimals=0),
    _latency("ITL p50, ms", "itl", "p50", factor=1e3, decimals=0),
    _latency("ITL p99, ms", "itl", "p99", factor=1e3, decimals=0),
    _latency("end to end p50, s", "end_to_end", "p50"),
)


@dataclass(frozen=True, slots=True)
class Grid:
    title: str
    heads: Sequence[str]
    lines: Sequence[Sequence[str]]
    notes: Sequence[str] = field(default_factory=tuple)


def main_grid(
    rows: Sequence[Row],
    systems: Sequence[str],
    limits: Mapping[str, float],
    read_gb_per_s: tuple[float, float] | None = None,
) -> Grid:
    """`limits`: tokens/s by workload; `read_gb_per_s`: the range of the memory's speed over the repeats."""
    heads = ("workload", "figure", *systems, "best peer", "ours/best", "limit", "ours/limit")
    lines = []
    for metric in METRICS:
        found = cells(rows, metric)
        if found:
            limit = None if metric.is_less_better else limits.get(metric.workload)
            lines.append(_line(metric, found, systems, limit))
    notes = [
        "median (least-greatest); *: a quarter of the workload, once, so not a best peer",
        "ours/best above 1 means ours is better, for times too; @N: step tokens, where swept",
        "limit: by roofline, from the median of what memory and products gave, measured once a repeat; "
        "attention left out",
    ]
    if read_gb_per_s is not None:
        low, high = read_gb_per_s
        notes.append(
            f"above 100 % of it: memory was faster in that minute than when it was measured "
            f"({low:.0f}-{high:.0f} GB/s)"
        )
    return Grid("Generated tokens/s and latencies, float32, two threads each", heads, lines, notes)


def long_grid(rows: Sequence[Row]) -> Grid:
    found = points(rows, LONG)
    peers_front = front([point for point in found if point.system != OURS])
    best = front(found)
    lines = [
        (
            point.system,
            str(point.step_tokens),
            f"{point.worst_gap_s:.2f}",
            f"{point.ttft_s:.1f}",
            "yes" if point in best else "",
            "yes" if point in peers_front else "",
        )
        for point in found
    ]
    heads = ("system", "step tokens", "worst gap, s", "TTFT, s", "on the front", "on the peers'")
    return Grid(BY_NAME[LONG].title, heads, lines, ("medians; front: no other point is better",))


def agreement_grid(rows: Sequence[Row], systems: Iterable[str]) -> Grid:
    """Do all compute the same? Near-ties of the logits may part greedy outputs."""
    lines = []
    for system in systems:
        found = agreement(rows, system)
        if system != OURS and found:
            num_whole = sum(each.is_whole for each in found)
            least = min(found, key=lambda each: each.num_equal / each.num_compared)
            lines.append(
                (
                    system,
                    f"{num_whole} of {len(found)}",
                    f"{least.num_equal} of {least.num_compared}",
                )
            )
    heads = (
        "system",
        "runs with all of them equal to ours",
        "tokens before the first other one, at worst",
    )
    notes = (
        "random prompts leave the model undecided: often two logits are nearly equal, rounding parts them, "
        "and everything after differs",
    )
    return Grid("First output tokens of each run's first request", heads, lines, notes)


def rich_table(grid: Grid) -> Table:
    table = Table(title=grid.title, caption="\n".join(grid.notes) or None)
    for number, head in enumerate(grid.heads):
        table.add_column(head, justify="left" if number == 0 else "right", overflow="fold")
    for line in grid.lines:
        table.add_row(*line)
    return table


def markdown(grid: Grid) -> str:
    rule = ["---", *("---:" for _ in grid.heads[1:])]
    table = [f"| {' | '.join(line)} |" for line in (grid.heads, rule, *grid.lines)]
    return "\n".join([f"### {grid.title}", "", *table, "", *(f"{note}.  " for note in grid.notes)])


def write_section(path: Path, text: str) -> None:
    """Between the markers, or into a new file. Raises ValueError for a file that has none."""
    section = f"{BEGIN}\n{text.strip()}\n{END}"
    if not path.exists():
        path.write_text(f"# Benchmarks\n\n{section}\n")
        return
    before, begin, rest = path.read_text().partition(BEGIN)
    if not begin:
        raise ValueError(f"{path} has no line {BEGIN}: where would the figures go?")
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{path}: {BEGIN} without {END}")
    path.write_text(f"{before}{section}{after}")


def _line(
    metric: Metric, found: Mapping[str, Cell], systems: Sequence[str], limit: float | None
) -> tuple[str, ...]:
    workload = BY_NAME[metric.workload]
    ratio = ratio_to_best(found, metric)
    ours = found.get(OURS)
    steps = {cell.step_tokens for cell in found.values()}
    return (
        workload.title,
        metric.label,
        *(_cell(found.get(system), metric, is_swept=len(steps) > 1) for system in systems),
        best_peer(found, metric) or "–",
        "–" if ratio is None else f"{ratio:.2f}",
        "" if limit is None else f"{limit:.0f}",
        "" if limit is None or ours is None else f"{100 * ours.median / limit:.0f} %",
    )


def _cell(cell: Cell | None, metric: Metric, *, is_swept: bool) -> str:
    if cell is None:
        return "–"
    text = f"{cell.median:.{metric.decimals}f}"
    if cell.num_runs > 1:
        text += f" ({cell.low:.{metric.decimals}f}-{cell.high:.{metric.decimals}f})"
    if is_swept and cell.step_tokens:
        text += f" @{cell.step_tokens}"
    return f"{text} *" if cell.is_quarter else text
