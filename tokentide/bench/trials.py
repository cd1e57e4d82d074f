"""Measures one thing after the other: says how long it will take, keeps each row, stops in time.

Knows nothing of what is measured. Times are in seconds of the clock it is given.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tokentide.bench.rows import Row, Rows

Subject = TypeVar("Subject")
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial(Generic[Subject]):
    """One row to measure."""

    key: str  # of its row
    subject: Subject
    expected_s: float  # a guess; finished rows correct it for all


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimit:
    """`minutes` from `started_s` on; None: no limit."""

    clock: Clock
    started_s: float
    minutes: float | None = None

    def left_s(self) -> float | None:
        if self.minutes is None:
            return None
        return self.started_s + self.minutes * 60 - self.clock()


class TrialProgress:
    """What a sequence of trials tells whoever watches it."""

    def say(self, message: str) -> None: ...
    def overall(self, num_done: int, num_trials: int, expected_s: float) -> None: ...


def left_over(trials: Sequence[Trial[Any]], rows: Rows) -> list[Trial[Any]]:
    return [trial for trial in trials if trial.key not in rows]


def expected_s(trials: Sequence[Trial[Any]], rows: Rows) -> float:
    """For the rows that are still to be measured: the guesses, corrected by what the others took."""
    done = [trial for trial in trials if trial.key in rows]
    guessed_s = sum(trial.expected_s for trial in done)
    taken_s = sum(rows[trial.key]["seconds"] for trial in done)
    correction = taken_s / guessed_s if guessed_s else 1.0
    return correction * sum(trial.expected_s for trial in left_over(trials, rows))


def expectation(trials: Sequence[Trial[Any]], rows: Rows, limit: TimeLimit) -> str:
    """One line to say before anything starts."""
    left = left_over(trials, rows)
    kept = f", {len(trials) - len(left)} kept from before" if len(left) < len(trials) else ""
    bound = f"; stops after {limit.minutes:g} min" if limit.minutes is not None else ""
    corrected = "" if kept else ", a guess until the first is measured"
    return (
        f"{len(left)} of {len(trials)} runs to measure{kept}: "
        f"about {minutes_text(expected_s(trials, rows))}{corrected}{bound}"
    )


def minutes_text(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


async def run_trials(
    trials: Sequence[Trial[Subject]],
    rows: Rows,
    limit: TimeLimit,
    measure: Callable[[Subject], Awaitable[Row]],
    progress: TrialProgress,
) -> int:
    """How many are left. One that the limit cuts off leaves no row."""
    for trial in left_over(trials, rows):
        left = left_over(trials, rows)
        needed_s, left_s = expected_s(trials, rows), limit.left_s()
        share = trial.expected_s / sum(other.expected_s for other in left)
        if left_s is not None and left_s < needed_s * share:
            break
        progress.overall(len(trials) - len(left), len(trials), needed_s)
        began_s = limit.clock()
        try:
            async with asyncio.timeout(left_s) as timer:
                row = await measure(trial.subject)
        except TimeoutError:
            if not timer.expired():
                raise
            break
        rows.add(trial.key, {**row, "seconds": limit.clock() - began_s})
    num_left = len(left_over(trials, rows))
    progress.overall(len(trials) - num_left, len(trials), expected_s(trials, rows))
    if num_left:
        progress.say(
            f"out of time: {num_left} of {len(trials)} runs left; the same command goes on"
        )
    return num_left
