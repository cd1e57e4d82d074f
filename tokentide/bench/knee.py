"""`tokentide bench knee`: what a decode step takes for one batch size after the other. Measures; judges nothing."""

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tokentide.bench.decode_steps import StepSource
from tokentide.bench.rows import Row, Rows
from tokentide.bench.serve import Progress
from tokentide.bench.statistics import Summary
from tokentide.bench.target import load_average
from tokentide.bench.trials import TimeLimit, Trial, run_trials

# Guesses, until the first row says better.
PREFILL_TOKENS_PER_S = 800.0
STEP_S = 0.015
STEP_S_PER_SEQUENCE = 0.001
OVERHEAD_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    batch_size: int
    context: int  # tokens of each sequence
    repeat: int

    @property
    def key(self) -> str:
        return f"{self.batch_size}x{self.context}#{self.repeat}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KneePlan:
    batch_sizes: tuple[int, ...]
    contexts: tuple[int, ...]
    num_steps: int  # a point
    repeat: int
    seed: int


def knee_trials(plan: KneePlan) -> list[Trial[Point]]:
    """Each repeat in an order of its own: a busy minute must not look like a knee."""
    trials = []
    for repeat in range(plan.repeat):
        points = [
            Point(batch_size=size, context=context, repeat=repeat)
            for context in plan.contexts
            for size in plan.batch_sizes
        ]
        random.Random(f"{plan.seed}/order/{repeat}").shuffle(points)
        trials += [
            Trial(key=point.key, subject=point, expected_s=_guess_s(point, plan))
            for point in points
        ]
    return trials


def _guess_s(point: Point, plan: KneePlan) -> float:
    prefill_s = point.batch_size * point.context / PREFILL_TOKENS_PER_S
    step_s = STEP_S + STEP_S_PER_SEQUENCE * point.batch_size
    return OVERHEAD_S + prefill_s + plan.num_steps * step_s


async def run_knee(
    plan: KneePlan,
    source: StepSource,
    rows: Rows,
    limit: TimeLimit,
    progress: Progress,
    facts: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """`facts` stand in every row."""
    measure = _measure(plan, source, progress, facts)
    await run_trials(knee_trials(plan), rows, limit, measure, progress)


def _measure(
    plan: KneePlan, source: StepSource, progress: Progress, facts: Mapping[str, Any]
) -> Callable[[Point], Awaitable[Row]]:
    async def measure(point: Point) -> Row:
        progress.say(f"{point.batch_size} sequences of {point.context} tokens")
        load_before = load_average()
        steps = await source.measure(point.batch_size, point.context, plan.num_steps)
        return {
            "model": source.model,
            "batch_size": point.batch_size,
            "context": point.context,
            "repeat": point.repeat,
            "step_ms": Summary.of(steps.steps_ms).as_dict(),
            "load_average_before": load_before,
            **facts,
        }

    return measure
