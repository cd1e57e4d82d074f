"""`tokentide demo`: eight prompts through a stack of real processes, shown step by step, and what it took."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tokentide.client import Chunk, Client
from tokentide.commands.operations_client import OperationsClient
from tokentide.commands.readings import Step, Totals, percentile
from tokentide.demo_prompts import DEMO_PROMPTS, DemoPrompt
from tokentide.live_view import is_live, rate, step_line, steps_panel
from tokentide.local_stack import LocalStack, StackSpec, local_stack
from tokentide.models import packaged_model_dir

TOKEN_BUDGET = 192  # small, so that the long prompt is seen to be cut
KV_MEMORY = "256MiB"
READY_S = 30.0
OTHER_COLUMNS = 38  # cells beside the answer, in the table of the answers
REFRESH_S = 0.125
SHOWN_STEPS = 6
TOKENS_A_LINE = 12


@dataclass(slots=True)
class Talk:
    """One prompt and its answer so far."""

    prompt: DemoPrompt
    num_prompt_tokens: int = 0
    submitted_s: float = 0.0
    arrivals_s: list[float] = field(default_factory=list)  # of each chunk that carried tokens
    num_tokens: int = 0
    text: str = ""
    end: str = ""

    def take(self, chunk: Chunk, now_s: float) -> None:
        self.num_prompt_tokens = chunk.num_prompt_tokens or self.num_prompt_tokens
        self.text += chunk.text
        if chunk.token_ids:
            self.num_tokens += len(chunk.token_ids)
            self.arrivals_s.append(now_s)
        if chunk.finish is not None:
            self.end = chunk.finish.reason.value.replace("_", " ")

    @property
    def ttft_s(self) -> float | None:
        """Time to first token."""
        return self.arrivals_s[0] - self.submitted_s if self.arrivals_s else None

    @property
    def gaps_s(self) -> list[float]:
        pairs = zip(self.arrivals_s, self.arrivals_s[1:], strict=False)
        return [after - before for before, after in pairs]


class Show(Protocol):
    def on_step(self, step: Step) -> None: ...
    def on_chunk(self, talk: Talk) -> None: ...
    async def run(self) -> None:
        """Draws until it is cancelled."""


async def run_demo(console: Console) -> int:
    def report(message: str) -> None:
        console.print(f"  {message}", markup=False, highlight=False, soft_wrap=True)

    spec = StackSpec(
        model_dir=packaged_model_dir(progress=report),
        worker_args=("--kv-memory", KV_MEMORY),
        scheduler_args=("--token-budget", str(TOKEN_BUDGET)),
    )
    console.print("Tokentide demo: one store, one worker, one scheduler", style="bold")
    async with local_stack(spec, report) as stack:
        summary = await stack.run(_converse(stack, console, report))
    for name, value in summary.rows():
        report(f"{name:<23}{value}")
    console.print("all processes have ended", style="dim")
    return 0


async def _converse(
    stack: LocalStack, console: Console, report: Callable[[str], None]
) -> "Summary":
    talks = [Talk(prompt) for prompt in DEMO_PROMPTS]
    show = LiveShow(console, talks) if is_live(console) else LineShow(console)
    async with (
        Client(stack.endpoints) as client,
        OperationsClient(stack.operations_endpoints[0]) as operations,
    ):
        await operations.wait_ready(READY_S)
        report("warming up with one short request")
        async for _ in client.generate("Hello", max_tokens=1):
            pass
        before = await operations.loads()
        report(f"sending {len(talks)} prompts at once; at most {TOKEN_BUDGET} tokens in a step\n")
        watching = asyncio.create_task(_watch(operations, show, before.totals.num_steps))
        drawing = asyncio.create_task(show.run())
        started_s = asyncio.get_running_loop().time()
        try:
            await asyncio.gather(*(_talk(client, talk, show) for talk in talks))
            wall_s = asyncio.get_running_loop().time() - started_s
            after = await operations.loads()
        finally:
            watching.cancel()
            drawing.cancel()
            await asyncio.gather(watching, drawing, return_exceptions=True)
    return Summary.of(talks, after.totals.since(before.totals), wall_s)


async def _talk(client: Client, talk: Talk, show: Show) -> None:
    loop = asyncio.get_running_loop()
    talk.submitted_s = loop.time()
    prompt = talk.prompt
    async for chunk in client.generate(
        [("user", prompt.text)],
        request_id=prompt.name,
        max_tokens=prompt.max_tokens,
        temperature=0,
    ):
        talk.take(chunk, loop.time())
        show.on_chunk(talk)


async def _watch(operations: OperationsClient, show: Show, num_earlier_steps: int) -> None:
    """From the ring of recent steps, so that none is missed; without those of the warm-up."""
    async for step in operations.watch_steps(replay_recent=True):
        if step.scheduled and step.step_id > num_earlier_steps:
            show.on_step(step)


class LineShow:
    """Plain lines: each step, and each answer a dozen tokens at a time."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._num_shown: dict[str, int] = {}  # characters of each answer

    async def run(self) -> None:
        return None

    def on_step(self, step: Step) -> None:
        self._line(step_line(step).plain)

    def on_chunk(self, talk: Talk) -> None:
        name = talk.prompt.name
        is_first = len(talk.arrivals_s) == 1 and name not in self._num_shown
        if not (is_first or talk.end or talk.num_tokens % TOKENS_A_LINE == 0):
            return
        if not talk.arrivals_s:
            return
        fresh = one_line(talk.text[self._num_shown.get(name, 0) :])
        self._num_shown[name] = len(talk.text)
        note = f" first token after {talk.ttft_s:.2f} s" if is_first else ""
        note += f" [{talk.end}]" if talk.end else ""
        if fresh or note:
            self._line(f"    {name:>8} {talk.num_tokens:>3} {fresh}{note}")

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class LiveShow:
    """A table of the answers as they grow, above the last steps."""

    def __init__(self, console: Console, talks: Sequence[Talk]) -> None:
        self._console = console
        self._talks = talks
        self._steps: list[Step] = []

    async def run(self) -> None:
        with Live(console=self._console, auto_refresh=False, get_renderable=self.render) as live:
            while True:
                live.refresh()
                await asyncio.sleep(REFRESH_S)

    def on_step(self, step: Step) -> None:
        self._steps = [*self._steps[1 - SHOWN_STEPS :], step]

    def on_chunk(self, talk: Talk) -> None:
        return None  # the next refresh shows it

    def render(self) -> RenderableType:
        return Group(talks_table(self._talks, self._console.width), steps_panel(self._steps))


def talks_table(talks: Sequence[Talk], width: int) -> Table:
    """Of an answer that grows, the end: as much as the other columns leave room for."""
    room = max(width - OTHER_COLUMNS, 20)
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    for name in ("request", "prompt", "TTFT", "tokens"):
        table.add_column(name, no_wrap=True, justify="left" if name == "request" else "right")
    table.add_column("answer", no_wrap=True, ratio=1)
    for talk in talks:
        ttft = f"{talk.ttft_s:.2f} s" if talk.ttft_s is not None else ""
        style = "dim" if talk.end else ""
        answer = Text(one_line(talk.text), overflow="ellipsis", no_wrap=True)
        num_prompt = str(talk.num_prompt_tokens or "")
        tail = answer if len(answer) <= room or talk.end else answer[-room:]
        table.add_row(talk.prompt.name, num_prompt, ttft, str(talk.num_tokens), tail, style=style)
    return table


def one_line(text: str) -> str:
    """Text of the model made harmless for a terminal: one line, no control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    wall_s: float
    num_generated: int
    totals: Totals
    ttfts_s: list[float]
    gaps_s: list[float]

    @classmethod
    def of(cls, talks: Sequence[Talk], totals: Totals, wall_s: float) -> "Summary":
        return cls(
            wall_s=wall_s,
            num_generated=sum(talk.num_tokens for talk in talks),
            totals=totals,
            ttfts_s=[talk.ttft_s for talk in talks if talk.ttft_s is not None],
            gaps_s=[gap for talk in talks for gap in talk.gaps_s],
        )

    def rows(self) -> list[tuple[str, str]]:
        totals = self.totals
        return [
            ("wall time", f"{self.wall_s:.1f} s, {totals.num_steps} steps"),
            (
                "generated",
                f"{rate(self.num_generated, self.wall_s)} tokens/s ({self.num_generated})",
            ),
            (
                "prompt",
                f"{rate(totals.num_prompt_tokens, self.wall_s)} tokens/s ({totals.num_prompt_tokens} computed,"
                f" {totals.num_cached_tokens} from the prefix cache)",
            ),
            ("time to first token", _spread(self.ttfts_s)),
            ("inter-token latency", _spread(self.gaps_s)),
            ("recomputed", f"{totals.num_recomputed_tokens} tokens"),
            ("worker idle with work", f"{totals.bubble_share:.2%} of the time"),
            ("mean batch size", f"{totals.mean_batch_size:.1f} sequences"),
        ]


def _spread(values_s: list[float]) -> str:
    p50, p99 = (1e3 * percentile(values_s, share) for share in (0.5, 0.99))
    return f"p50 {p50:.0f} ms, p99 {p99:.0f} ms"
