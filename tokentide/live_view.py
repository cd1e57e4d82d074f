"""How a running service looks in a terminal, and in plain lines where there is none.

Readings in, rich renderables out: knows nothing of grpc, of time, or of where the readings come from.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from shared.types import BlockCounts
from tokentide.commands.readings import Loads, Scheduled, Step, Totals, WorkerReading, sum_of
from tokentide.token_rates import TokenRate

MAX_NAME = 10
MAX_WORKER = 12
MAX_NAMES = 8  # of one kind, in the line of a step
BAR_WIDTH = 30
STILL_S = 2.0  # requests run, and no step ends: said from here on
STALE_S = 5.0  # a replica that says nothing while others do has gone
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
        self._read_s: dict[str, float] = {}
        self._steps: deque[Step] = deque(maxlen=num_steps)
        self._num_steps: dict[str, int] = {}  # by incarnation
        self._moved_s = 0.0  # when one of them last grew
        self._generated, self._prompt = TokenRate(), TokenRate()

    def on_loads(self, loads: Loads, now_s: float) -> None:
        replica_id = loads.replica_id
        before = self._loads.get(replica_id)
        if before and loads.totals.num_steps < before.totals.num_steps:
            self._prompt.forget(replica_id)  # another process under the same name
        self._loads[replica_id], self._read_s[replica_id] = loads, now_s
        stats = [worker.stats for worker in loads.workers]
        if any(s.num_steps > self._num_steps.get(s.incarnation, -1) for s in stats):
            self._num_steps |= {s.incarnation: s.num_steps for s in stats}
            self._moved_s = now_s
        self._generated.on_counts({s.incarnation: s.num_sampled_tokens for s in stats}, now_s)
        self._prompt.on_counts({replica_id: loads.totals.num_prompt_tokens}, now_s)

    def on_step(self, step: Step) -> None:
        if step.scheduled:
            self._steps.append(step)

    @property
    def totals(self) -> Totals:
        return sum_of(loads.totals for loads in self._loads.values())

    @property
    def generated_per_s(self) -> str:
        """Over the last few seconds; every replica sees all workers' counts."""
        return self._generated.per_s

    @property
    def prompt_per_s(self) -> str:
        """Over the last few seconds; of the replicas that are asked."""
        return self._prompt.per_s

    @property
    def standstill(self) -> str:
        """Said long before a replica can know that a store which does not answer is away."""
        still_s = max(self._read_s.values()) - self._moved_s
        are_some_running = any(loads.num_running for loads in self._fresh)
        if not are_some_running or still_s < STILL_S:
            return ""
        return f"no step has ended for {still_s:.0f} s"

    def render(self) -> RenderableType:
        if not self._loads:
            return Text("waiting for the first reading")
        newest = max(self._fresh, key=lambda loads: len(loads.workers))
        parts: list[RenderableType] = [self._head(newest), *map(worker_lines, newest.workers)]
        if self._steps:
            parts.append(steps_panel(self._steps))
        return Group(*parts)

    @property
    def _fresh(self) -> list[Loads]:
        last_s = max(self._read_s.values())
        return [self._loads[name] for name, s in self._read_s.items() if last_s - s <= STALE_S]

    def _head(self, loads: Loads) -> Text:
        fresh = self._fresh
        reasons = [f"{each.replica_id}: {reason}\n" for each in fresh if (reason := why_not(each))]
        state, style = ("not serving", "red") if reasons else ("serving", "green")
        if 0 < len(reasons) < len(fresh):
            state = f"{len(fresh) - len(reasons)} of {len(fresh)} serving"
        return Text.assemble(
            (state, style),
            (f" {loads.model or 'no model yet'}", "bold"),
            f"  {loads.strategy}  replicas {loads.num_replicas}",
            f"  streams {sum(each.num_streams for each in fresh)}\n",
            ("".join(reasons), "red"),
            (f"{still}\n" if (still := self.standstill) else "", "red"),
            f"queue {loads.num_waiting} ({loads.num_waiting_tokens} tokens)",
            f"  running {loads.num_running}",
            f"  mean batch {self.totals.mean_batch_size:.1f}",
            f"  bubble {self.totals.bubble_share:.2%}\n",
            f"generated {self.generated_per_s} tokens/s  prompt {self.prompt_per_s} tokens/s\n",
            f"preemptions {self.totals.num_preemptions}",
            f"  recomputed {self.totals.num_recomputed_tokens} tokens",
            **_ONE_LINE_EACH,
        )


def why_not(loads: Loads) -> str:
    """Why a replica does not serve, as far as its reading tells; empty if it does."""
    if loads.serving:
        return ""
    if not loads.model:
        return "no worker has been found yet"
    if not loads.workers:
        return "no worker is there"
    return "the store does not answer, or the replica drains"


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
    table.add_column("worker", no_wrap=True, max_width=MAX_WORKER, overflow="ellipsis")
    for name in ("step", "ms", "free", "cached", "held", "queue"):
        table.add_column(name, no_wrap=True, justify="right")
    table.add_column("who", no_wrap=True, overflow="ellipsis", ratio=1)
    for step in steps:
        blocks = step.blocks
        counts = (blocks.free, blocks.cached, blocks.held, step.num_waiting)
        took = f"{step.timings.total_ns / 1e6:.0f}"
        table.add_row(step.worker, str(step.step_id), took, *map(str, counts), _who(step))
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
        who.append(f"{len(step.decodes)}: {_names(step.decodes, with_tokens=False)}")
    return who


def loads_line(view: StackView, loads: Loads) -> str:
    """One reading as a plain line."""
    reason = why_not(loads)
    line = f"{f'not serving ({reason})' if reason else 'serving'} {loads.model or '-'}"
    line += f" | queue {loads.num_waiting} running {loads.num_running} streams {loads.num_streams}"
    line += f" | generated {view.generated_per_s} prompt {view.prompt_per_s} tokens/s"
    line += f" | {view.standstill}" if view.standstill else ""
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
