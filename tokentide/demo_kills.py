"""The demo's second round: the same prompts, while a scheduler and then a worker are killed in mid-stream.

When to kill is decided by what has been seen of the round, never by the time.
"""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from rich.console import Console

from tokentide.client import Client
from tokentide.commands.readings import Step
from tokentide.demo_round import Talk, converse
from tokentide.demo_show import shown
from tokentide.demo_verdict import Killed, is_equal, verdict, verdicts_table
from tokentide.local_stack import LocalStack, Report
from tokentide.plain_lines import print_line

# Shares of all tokens that are to come. The first kill waits for all first tokens, but not for ever.
EARLY, MIDDLE, LATE = 0.2, 0.4, 0.75
NUM_FRESH = 3  # tokens of each answer since the takeover: it goes on

Result = TypeVar("Result")
Kill = Callable[[str, str], None]  # a process's label, and what it was doing


async def run_kills(
    stack: LocalStack, client: Client, calm: Sequence[Talk], console: Console, report: Report
) -> bool:
    """Were both killed, and is every answer the same as the one in `calm`?"""
    talks = [Talk(replace(talk.prompt, name=f"{talk.prompt.name}-2")) for talk in calm]
    killed: list[Killed] = []
    loop = asyncio.get_running_loop()

    def kill(label: str, doing: str) -> None:
        processes = {each.label: each for each in (*stack.schedulers, *stack.workers)}
        processes[label].signal(signal.SIGKILL)
        killed.append(Killed(label, loop.time()))
        message = f"kill -9 {label} (process {processes[label].pid}): {doing}"
        print_line(console, message, style="bold red")

    kills = Kills(talks, sum(talk.num_tokens for talk in calm), kill)
    report(f"the same {len(talks)} prompts again; a scheduler and a worker will be killed\n")
    async with shown(console, talks) as show:
        await _supervised(stack, report, converse(stack, client, talks, (show, kills)))
    pairs = list(zip(calm, talks, strict=True))
    console.print(verdicts_table(pairs, killed))
    for line in verdict(pairs, killed):
        report(line)
    if len(killed) < 2:
        report("but the answers had ended before both could be killed")
    return len(killed) == 2 and all(is_equal(*pair) for pair in pairs)


async def _supervised(
    stack: LocalStack, report: Report, work: Coroutine[Any, Any, Result]
) -> Result:
    """What `work` returns; what dies meanwhile is started again. Raises ServiceFailed."""
    working = asyncio.create_task(work)
    supervising = asyncio.create_task(stack.supervise(report))
    try:
        await asyncio.wait((working, supervising), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            supervising.result()
        return working.result()
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
    finally:
        for task in (working, supervising):
            task.cancel()
        await asyncio.gather(working, supervising, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _Sight:
    """The last step seen of a worker."""

    scheduler: str
    request_ids: frozenset[str]


class Kills:
    """Looks on, and kills: the scheduler that drives most answers; once all go on, the worker that has most."""

    def __init__(self, talks: Sequence[Talk], num_expected: int, kill: Kill) -> None:
        """`num_expected`: tokens of all answers together."""
        self.labels: list[str] = []  # of what was killed
        self._talks = {talk.prompt.name: talk for talk in talks}
        self._num_expected = num_expected
        self._kill = kill
        self._sights: dict[str, _Sight] = {}  # by worker
        self._orphans: set[str] = set()  # workers of the killed scheduler, not taken over
        self._num_at_takeover: Mapping[str, int] | None = None

    def on_step(self, scheduler: str, step: Step) -> None:
        ids = frozenset(each.request_id for each in step.scheduled)
        self._sights[step.worker] = _Sight(scheduler, ids)
        if scheduler not in self.labels:  # else a step from before it was killed
            self._orphans.discard(step.worker)
        self._kill_if_due()

    def on_chunk(self, talk: Talk) -> None:
        self._kill_if_due()

    def _kill_if_due(self) -> None:
        running = {worker: self._running_on(worker) for worker in self._sights}
        busiest = max(running, key=lambda worker: len(running[worker]), default="")
        if not busiest or not running[busiest]:
            return
        if not self.labels and self._is_middle():
            self._kill_scheduler(self._sights[busiest].scheduler)
        elif len(self.labels) == 1 and (self._goes_on() or self._is_late()):
            self._end(busiest, f"it computed {', '.join(running[busiest])}")

    def _kill_scheduler(self, label: str) -> None:
        driven = [worker for worker, sight in self._sights.items() if sight.scheduler == label]
        self._orphans = set(driven)
        said = (f"{worker} ({', '.join(self._running_on(worker)) or 'idle'})" for worker in driven)
        self._end(label, f"it drove {' and '.join(said)}")

    def _end(self, label: str, doing: str) -> None:
        self.labels.append(label)
        out = f"{self._num_tokens} of {self._num_expected} tokens were out"
        self._kill(label, f"{doing}; {out}")

    def _running_on(self, worker: str) -> list[str]:
        """Requests in its last step whose answers have not ended."""
        ids = self._sights[worker].request_ids
        return [name for name in self._unfinished if name in ids]

    @property
    def _unfinished(self) -> list[str]:
        return [name for name, talk in self._talks.items() if not talk.end]

    @property
    def _num_tokens(self) -> int:
        return sum(talk.num_tokens for talk in self._talks.values())

    def _is_middle(self) -> bool:
        have_all_begun = all(talk.arrivals_s for talk in self._talks.values())
        return self._num_tokens >= self._num_expected * (EARLY if have_all_begun else MIDDLE)

    def _is_late(self) -> bool:
        return self._num_tokens >= self._num_expected * LATE

    def _goes_on(self) -> bool:
        """Every answer has grown since the last worker without a scheduler was taken over."""
        if any(self._running_on(worker) for worker in self._orphans):
            return False
        if self._num_at_takeover is None:
            self._num_at_takeover = {name: talk.num_tokens for name, talk in self._talks.items()}
        return all(
            self._talks[name].num_tokens >= self._num_at_takeover[name] + NUM_FRESH
            for name in self._unfinished
        )
