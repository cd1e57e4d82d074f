"""How a running service looks in a terminal, and in plain lines where there is none.

Readings in, rich renderables out: knows nothing of grpc, of time, or of where the readings come from.
"""

from collections import deque
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from shared.types import BlockCounts
from tokentide.commands.readings import Loads, Scheduled, Step

MAX_NAME = 10
MAX_NAMES = 8  # of one kind, in the line of a step
BAR_WIDTH = 30


def is_live(console: Console) -> bool:
    """Can this terminal be drawn over? Else plain lines are written."""
    return console.is_terminal and not console.is_dumb_terminal


def step_line(step: Step) -> Text:
    """One step: how long, who was in it with how many tokens, and how the cache and the queue stand."""
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"step {step.step_id:>4}", style="bold")
    line.append(f" {step.timings.total_ns / 1e6:>5.0f} ms ")
    if step.chunks:
        line.append(" chunk ", style="bold yellow")
        line.append(_names(step.chunks, with_tokens=True))
    if step.decodes:
        line.append(" decode ", style="bold green")
        line.append(f"{len(step.decodes)}: {_names(step.decodes, with_tokens=False)}")
    if step.preempted:
        line.append(" preempted ", style="bold red")
        line.append(" ".join(map(short_name, step.preempted)))
    line.append(f" | {blocks_text(step.blocks)} | queue {step.num_waiting}", style="dim")
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
    """The last reading and the last steps of what one replica sees."""

    def __init__(self, num_steps: int = 8) -> None:
        self._loads: Loads | None = None
        self._before: Loads | None = None
        self._between_s = 0.0
        self._read_s = 0.0
        self._steps: deque[Step] = deque(maxlen=num_steps)

    def on_loads(self, loads: Loads, now_s: float) -> None:
        self._before, self._between_s = self._loads, now_s - self._read_s
        self._loads, self._read_s = loads, now_s

    def on_step(self, step: Step) -> None:
        self._steps.append(step)

    @property
    def generated_per_s(self) -> str:
        """Over the time between the last two readings."""
        return self._rate("num_sampled_tokens")

    @property
    def prompt_per_s(self) -> str:
        return self._rate("num_prompt_tokens")

    def render(self) -> RenderableType:
        if self._loads is None:
            return Text("waiting for the first reading")
        parts: list[RenderableType] = [self._head(self._loads), workers_table(self._loads)]
        if self._steps:
            parts.append(steps_panel(self._steps))
        return Group(*parts)

    def _rate(self, name: str) -> str:
        if self._loads is None or self._before is None:
            return "-"
        num_tokens = getattr(self._loads.totals, name) - getattr(self._before.totals, name)
        return rate(num_tokens, self._between_s)

    def _head(self, loads: Loads) -> Text:
        head = Text()
        head.append(
            "serving" if loads.serving else "not serving", "green" if loads.serving else "red"
        )
        head.append(f" {loads.model or 'no model yet'}", style="bold")
        head.append(
            f"  {loads.strategy}  {loads.num_replicas} replica(s)  {loads.num_streams} streams here\n"
        )
        head.append(f"queue {loads.num_waiting} waiting ({loads.num_waiting_tokens} tokens)  ")
        head.append(f"{loads.num_running} running  generated {self.generated_per_s} tokens/s  ")
        head.append(f"prompt {self.prompt_per_s} tokens/s  bubble {loads.totals.bubble_share:.1%}")
        return head


def workers_table(loads: Loads) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("worker", "address", "driver", "step", "live", "blocks", "", "memory"):
        table.add_column(name, no_wrap=True)
    for worker in loads.workers:
        stats = worker.stats
        table.add_row(
            worker.name,
            worker.address,
            stats.driver or Text("nobody", style="red"),
            str(stats.last_step_id),
            str(stats.num_sequences),
            blocks_bar(stats.blocks),
            blocks_text(stats.blocks).removeprefix("blocks "),
            memory_text(stats.memory.process_bytes, stats.memory.kv_bytes),
        )
    return table


def memory_text(process_bytes: int, kv_bytes: int) -> str:
    return f"{process_bytes / 2**20:.0f} MiB, cache {kv_bytes / 2**20:.0f} MiB"


def steps_panel(steps: Sequence[Step] | deque[Step]) -> Panel:
    return Panel(Group(*map(step_line, steps)), title="last steps", title_align="left", style="dim")


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
