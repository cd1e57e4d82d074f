"""How a round of the demo looks: drawn over in a terminal, in plain lines where there is none."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tokentide.commands.readings import Step
from tokentide.demo_round import Onlooker, Talk
from tokentide.live_view import is_live, step_line, steps_panel
from tokentide.plain_lines import print_line

OTHER_COLUMNS = 38  # cells beside the answer, in the table of the answers
REFRESH_S = 0.125
SHOWN_STEPS = 6
TOKENS_A_LINE = 12


@asynccontextmanager
async def shown(console: Console, talks: Sequence[Talk]) -> AsyncIterator[Onlooker]:
    """What looks on and shows it, until the block ends."""
    if not is_live(console):
        yield LineShow(console)
        return
    show = LiveShow(console, talks)
    drawing = asyncio.create_task(show.draw())
    try:
        yield show
    finally:
        drawing.cancel()
        await asyncio.gather(drawing, return_exceptions=True)


class LineShow:
    """Plain lines: each step, and each answer a dozen tokens at a time."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._num_shown: dict[str, int] = {}  # characters of each answer

    def on_step(self, scheduler: str, step: Step) -> None:
        print_line(self._console, f"{step.worker} {step_line(step).plain}")

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
            print_line(self._console, f"    {name:>9} {talk.num_tokens:>3} {fresh}{note}")


class LiveShow:
    """A table of the answers as they grow, above the last steps."""

    def __init__(self, console: Console, talks: Sequence[Talk]) -> None:
        self._console = console
        self._talks = talks
        self._steps: list[Step] = []

    async def draw(self) -> None:
        """Until it is cancelled."""
        with Live(console=self._console, auto_refresh=False, get_renderable=self.render) as live:
            while True:
                live.refresh()
                await asyncio.sleep(REFRESH_S)

    def on_step(self, scheduler: str, step: Step) -> None:
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
