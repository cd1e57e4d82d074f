"""What a long benchmark shows while it runs: a bar on standard error, so that standard output stays JSON."""

import asyncio
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import Progress as RichProgress

from tokentide.bench.load import Observation
from tokentide.bench.serve import Progress
from tokentide.bench.trials import minutes_text


class LiveProgress(Progress):
    """A line each: what is being done, its requests and tokens a second; all runs and the time left."""

    def __init__(self) -> None:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
        )
        self._bar = RichProgress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("starting", total=None, rate="")
        self._all = self._bar.add_task("all runs", total=None, rate="", visible=False)
        self._num_tokens = 0
        self._started_s = 0.0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar.console.is_interactive:
            self._bar.stop()
        else:
            self._bar.live.stop()  # without the empty line that the bar would add

    def say(self, message: str) -> None:
        self._bar.reset(self._task, description=message, total=None, rate="")
        if not self._bar.console.is_terminal:
            self._bar.console.print(message)

    def tell(self, message: str) -> None:
        """Stays above the bar."""
        self._bar.console.print(message, markup=False, highlight=False)

    def overall(self, num_done: int, num_trials: int, expected_s: float) -> None:
        left = f"about {minutes_text(expected_s)} left"
        self._bar.update(self._all, completed=num_done, total=num_trials, rate=left, visible=True)
        if not self._bar.console.is_terminal:
            self._bar.console.print(f"{num_done} of {num_trials} runs, {left}")

    def start(self, label: str, num_requests: int) -> None:
        self.say(label)
        self._bar.update(self._task, total=num_requests)
        self._num_tokens, self._started_s = 0, asyncio.get_running_loop().time()

    def ended(self, observation: Observation) -> None:
        self._num_tokens += len(observation.token_ids)
        passed_s = asyncio.get_running_loop().time() - self._started_s
        rate = f"{self._num_tokens / max(passed_s, 1e-9):.1f} tokens/s"
        self._bar.update(self._task, advance=1, rate=rate)
