"""`tokentide bench timeline`: when each request waited, was computed, held its place and had its answer.

The same requests and arrivals through each strategy, switched live on one stack.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tokentide.bench.compare import (
    OVERHEAD_S,
    CompareOptions,
    StrategyRun,
    expected_load_s,
    warm_stack,
)
from tokentide.bench.load import Observation
from tokentide.bench.report import Measured, figures
from tokentide.bench.rows import Row, Rows
from tokentide.bench.serve import Progress, measure_load, requests_of
from tokentide.bench.strategies import NamedStrategy
from tokentide.bench.strategy_switch import StrategySwitch, strategy_switch
from tokentide.bench.target import Target, load_average, open_target
from tokentide.bench.timeline_segments import request_segments
from tokentide.bench.trials import TimeLimit, Trial, run_trials


@dataclass(frozen=True, slots=True)
class _Stack:
    target: Target
    switch: StrategySwitch


def timeline_trials(options: CompareOptions) -> list[Trial[StrategyRun]]:
    """One run a strategy, in the order given."""
    guess_s = expected_load_s(requests_of(options.case, options.serve)) + OVERHEAD_S
    return [
        Trial(
            key=strategy.label,
            subject=StrategyRun(strategy=strategy, repeat=0),
            expected_s=guess_s,
        )
        for strategy in options.strategies
    ]


async def run_timeline(
    options: CompareOptions, rows: Rows, limit: TimeLimit, progress: Progress
) -> None:
    if options.serve.save is not None:
        options.serve.save(requests_of(options.case, options.serve))
    async with (
        open_target(options.serve.target, progress.say) as target,
        strategy_switch(target.operations) as switch,
    ):
        stack = _Stack(target, switch)

        async def measure(run: StrategyRun) -> Row:
            return await _measure(run, options, stack, progress)

        async def work() -> None:
            await warm_stack(options.serve, target, progress)
            await run_trials(timeline_trials(options), rows, limit, measure, progress)

        await (target.stack.run(work()) if target.stack else work())


async def _measure(
    run: StrategyRun, options: CompareOptions, stack: _Stack, progress: Progress
) -> Row:
    strategy, target = run.strategy, stack.target
    progress.say(strategy.label)
    await stack.switch.set(strategy.settings)
    sampling = replace(options.serve.sampling, cache_salt=uuid.uuid4().hex)
    serve = replace(options.serve, sampling=sampling)
    load_before = load_average()
    requests = requests_of(options.case, serve)
    measured = await measure_load(options.case, requests, serve, target, progress, keep_spans=True)
    return {
        "model": target.model,
        "strategy": strategy.label,
        "settings": strategy.settings.as_json(),
        "load_average_before": load_before,
        "figures": figures(measured),
        "requests": timelines(strategy, measured),
    }


def timelines(strategy: NamedStrategy, measured: Measured) -> list[dict[str, Any]]:
    """One entry a request, in the order of the workload; times in seconds from the load's start."""
    start_s = measured.started_s
    spans = sorted(measured.steps.spans, key=lambda span: span.ended_s)
    return [
        {
            "due_s": observation.due_s - start_s,
            "first_chunk_s": _since(observation.first_token_s, start_s),
            "ended_s": observation.ended_s - start_s,  # its answer is complete, at the client
            "status": observation.status,
            "num_prompt_tokens": observation.num_prompt_tokens,
            "num_output_tokens": len(observation.token_ids),
            "chunks": [[at - start_s, number] for at, number in observation.arrivals],
            "segments": [
                {"kind": s.kind.value, "start_s": s.start_s - start_s, "end_s": s.end_s - start_s}
                for s in request_segments(
                    observation.request_id,
                    observation.due_s,
                    spans,
                    holds_place=strategy.is_batching,
                )
            ],
        }
        for observation in _in_order(measured.observations)
    ]


def _in_order(observations: Sequence[Observation]) -> list[Observation]:
    return sorted(observations, key=lambda observation: observation.due_s)


def _since(at_s: float | None, start_s: float) -> float | None:
    return None if at_s is None else at_s - start_s
