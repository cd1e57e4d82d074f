"""How a running service looks in a terminal, and in plain lines where there is none.

Readings in, rich renderables out: knows nothing of grpc, of time, or of where the readings come from.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from shared.types import BlockCounts
from tokentide.commands.readings import Loads, Scheduled, Step, Totals, WorkerReading, sum_of

MAX_NAME = 10
MAX_NAMES = 8  # of one kind, in the line of a step
BAR_WIDTH = 30
NUM_RATE_READINGS = 5
MIB = 2**20
_ONE_LINE_EACH: Any = {"no_wrap": True, "overflow": "ellipsis"}


def is_live(console: Console) -> bool:
    """Can this terminal be drawn over? Else plain lines are written."""
    return console.is_terminal and not console.is_dumb_terminal


def step_line(step: Step) -> Text:
    """One step: how long, who was in it with how many tokens, and how the cache and the queue stand."""
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"step {step.step_id:>4}", style="bold")
    line.append(f" {step.timings.total_ns / 1e6:>5.0f} ms")
    line.append(f" | {blocks_text(step.blocks)} | queue {step.num_waiting} |", style="dim")
    if step.chunks:
        line.append(" chunk ", style="bold yellow")
        line.append(_names(step.chunks, with_tokens=True))
    if step.decodes:
        line.append(" decode ", style="bold green")
        line.append(f"{len(step.decodes)}: {_names(step.decodes, with_tokens=False)}")
    if step.preempted:
        line.append(" preempted ", style="bold red")
        line.append(" ".join(map(short_name, step.preempted)))
    return line


def blocks_text(blocks: BlockCounts) -> str:
    return f"blocks {blocks.free} free {blocks.cached} cached {blocks.held} held"


def blocks_bar(blocks: BlockCounts, width: int = BAR_WIDTH) -> Text:
    """Held, cached and free blocks as a bar. What is not zero has at least one cell."""
    bar = Text()
    held, cached = (_cells(count, blocks.total, width) for count in (blocks.held, blocks.cached))
    cached = min(cached, width - held)
    bar.append("█" * held, style="cyan")
    bar.append("▒" * cached, style="blue")
    bar.append("·" * (width - held - cached), style="dim")
    return bar


def short_name(request_id: str) -> str:
    """Names that people gave, whole; drawn ids by their beginning."""
    return request_id if len(request_id) <= MAX_NAME else request_id[:8]


def rate(num_tokens: int, seconds: float) -> str:
    return f"{num_tokens / seconds:.1f}" if seconds > 0 else "-"


class StackView:
    """The last readings and the last steps of what the asked replicas see."""

    def __init__(self, num_steps: int = 8) -> None:
        self._loads: dict[str, Loads] = {}  # by replica
        self._steps: deque[Step] = deque(maxlen=num_steps)
        self._sums: deque[_Sum] = deque(maxlen=NUM_RATE_READINGS)

    def on_loads(self, loads: Loads, now_s: float) -> None:
        self._loads[loads.replica_id] = loads
        num_generated = sum(w.stats.num_sampled_tokens for w in loads.workers)
        self._sums.append(_Sum(now_s, num_generated, self.totals.num_prompt_tokens))

    def on_step(self, step: Step) -> None:
        if step.scheduled:
            self._steps.append(step)

    @property
    def totals(self) -> Totals:
        return sum_of(loads.totals for loads in self._loads.values())

    @property
    def generated_per_s(self) -> str:
        """Over the last few readings; every replica sees all workers' counts."""
        return self._rate(lambda reading: reading.num_generated)

    @property
    def prompt_per_s(self) -> str:
        """Over the last few readings; of the replicas that are asked."""
        return self._rate(lambda reading: reading.num_prompt)

    def render(self) -> RenderableType:
        if not self._loads:
            return Text("waiting for the first reading")
        newest = max(self._loads.values(), key=lambda loads: len(loads.workers))
        parts: list[RenderableType] = [self._head(newest), *map(worker_lines, newest.workers)]
        if self._steps:
            parts.append(steps_panel(self._steps))
        return Group(*parts)

    def _rate(self, count: Callable[["_Sum"], int]) -> str:
        if len(self._sums) < 2:
            return "-"
        first, last = self._sums[0], self._sums[-1]
        return rate(max(count(last) - count(first), 0), last.now_s - first.now_s)

    def _head(self, loads: Loads) -> Text:
        state, style = ("serving", "green") if loads.serving else ("not serving", "red")
        num_streams = sum(each.num_streams for each in self._loads.values())
        return Text.assemble(
            (state, style),
            (f" {loads.model or 'no model yet'}", "bold"),
            f"  {loads.strategy}  replicas {loads.num_replicas}  streams {num_streams}\n",
            f"queue {loads.num_waiting} ({loads.num_waiting_tokens} tokens)",
            f"  running {loads.num_running}",
            f"  mean batch {self.totals.mean_batch_size:.1f}",
            f"  bubble {self.totals.bubble_share:.2%}\n",
            f"generated {self.generated_per_s} tokens/s  prompt {self.prompt_per_s} tokens/s\n",
            f"preemptions {self.totals.num_preemptions}",
            f"  recomputed {self.totals.num_recomputed_tokens} tokens",
            **_ONE_LINE_EACH,
        )


@dataclass(frozen=True, slots=True)
class _Sum:
    now_s: float
    num_generated: int
    num_prompt: int


def worker_lines(worker: WorkerReading) -> Text:
    stats, memory = worker.stats, worker.stats.memory
    driver = f"driven by {stats.driver}" if stats.driver else "driven by nobody"
    text = Text.assemble(
        (worker.name, "bold"),
        f" {worker.address}  {driver}  step {stats.last_step_id}  live {stats.num_sequences}\n  ",
        blocks_bar(stats.blocks),
        f" {blocks_text(stats.blocks)}\n",
        (
            f"  memory {memory.process_bytes / MIB:.0f} MiB, of it cache {memory.kv_bytes / MIB:.0f} MiB",
            "dim",
        ),
        **_ONE_LINE_EACH,
    )
    if memory.device_total_bytes:
        used, total = (b / MIB for b in (memory.device_used_bytes, memory.device_total_bytes))
        text.append(f", device {used:.0f} of {total:.0f} MiB", style="dim")
    return text


def steps_panel(steps: Sequence[Step] | deque[Step]) -> Panel:
    """Numbers first and no word twice, so that 80 columns still say who was in a step."""
    table = Table(box=None, pad_edge=False, expand=True, header_style="dim")
    has_several = len({step.worker for step in steps}) > 1
    if has_several:
        table.add_column("worker", no_wrap=True)
    for name in ("step", "ms", "free", "cached", "held", "queue", "decodes"):
        table.add_column(name, no_wrap=True, justify="right")
    table.add_column("who", no_wrap=True, overflow="ellipsis", ratio=1)
    for step in steps:
        blocks = step.blocks
        counts = (blocks.free, blocks.cached, blocks.held, step.num_waiting, len(step.decodes))
        took = f"{step.timings.total_ns / 1e6:.0f}"
        worker = (step.worker,) if has_several else ()
        table.add_row(*worker, str(step.step_id), took, *map(str, counts), _who(step))
    return Panel(table, title="last steps", title_align="left", style="dim")


def _who(step: Step) -> Text:
    """What is rare comes first: the end may be cut off."""
    who = Text(no_wrap=True, overflow="ellipsis")
    if step.preempted:
        who.append("preempted ", style="bold red")
        who.append(" ".join(map(short_name, step.preempted)) + " ")
    if step.chunks:
        who.append("chunk ", style="bold yellow")
        who.append(_names(step.chunks, with_tokens=True) + " ")
    if step.decodes:
        who.append("decode ", style="bold green")
        who.append(_names(step.decodes, with_tokens=False))
    return who


def loads_line(view: StackView, loads: Loads) -> str:
    """One reading as a plain line."""
    line = f"{'serving' if loads.serving else 'not serving'} {loads.model or '-'}"
    line += f" | queue {loads.num_waiting} running {loads.num_running} streams {loads.num_streams}"
    line += f" | generated {view.generated_per_s} prompt {view.prompt_per_s} tokens/s"
    for worker in loads.workers:
        line += (
            f" | {worker.name} step {worker.stats.last_step_id} {blocks_text(worker.stats.blocks)}"
        )
    return line


def _names(scheduled: Sequence[Scheduled], *, with_tokens: bool) -> str:
    shown = [
        f"{short_name(s.request_id)}{f' +{s.num_tokens}' if with_tokens else ''}"
        for s in scheduled[:MAX_NAMES]
    ]
    more = f" and {len(scheduled) - MAX_NAMES} more" if len(scheduled) > MAX_NAMES else ""
    return (", " if with_tokens else " ").join(shown) + more


def _cells(count: int, total: int, width: int) -> int:
    if not count or not total:
        return 0
    return max(round(count * width / total), 1)
