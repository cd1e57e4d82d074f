"""`tokentide bench compare`: the same requests through each strategy on one live stack.

The strategy is switched live; the order is drawn anew for each repeat. Every trial has a cache salt of its
own, so that no strategy finds the prompts of the one before in the prefix cache.
"""

import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tokentide.bench.load import Sampling, run_closed_loop
from tokentide.bench.report import figures
from tokentide.bench.rows import Row, Rows
from tokentide.bench.serve import Case, Progress, ServeOptions, measure_load, requests_of
from tokentide.bench.strategies import NamedStrategy
from tokentide.bench.strategy_switch import StrategySwitch, strategy_switch
from tokentide.bench.target import Target, load_average, open_target
from tokentide.bench.trials import TimeLimit, Trial, run_trials
from tokentide.bench.workload import WorkRequest

ASSUMED_TOKENS_PER_S = 150.0  # until the first run says better
OVERHEAD_S = 3.0  # warming up, switching
NUM_WARM_REQUESTS = 8
NUM_WARM_TOKENS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions:
    serve: ServeOptions  # its concurrency or arrivals, workload and target; one case
    strategies: tuple[NamedStrategy, ...]
    repeat: int

    @property
    def case(self) -> Case:
        """The same for every strategy and repeat: so are its requests."""
        is_open = self.serve.is_open_loop
        concurrency = None if is_open else self.serve.concurrencies[0]
        return Case(index=0, concurrency=concurrency, repeat=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyRun:
    strategy: NamedStrategy
    repeat: int


def compare_trials(options: CompareOptions) -> list[Trial[StrategyRun]]:
    """In the order in which they are to run."""
    requests = requests_of(options.case, options.serve)
    guess_s = expected_load_s(requests) + OVERHEAD_S
    trials = []
    for repeat in range(options.repeat):
        strategies = list(options.strategies)
        random.Random(f"{options.serve.spec.seed}/order/{repeat}").shuffle(strategies)
        for strategy in strategies:
            run = StrategyRun(strategy=strategy, repeat=repeat)
            key = f"{strategy.label}#{repeat}"
            trials.append(Trial(key=key, subject=run, expected_s=guess_s))
    return trials


def expected_load_s(requests: Sequence[WorkRequest]) -> float:
    """A guess."""
    num_tokens = sum(request.max_tokens for request in requests)
    return max(num_tokens / ASSUMED_TOKENS_PER_S, requests[-1].arrival_s)


async def run_compare(
    options: CompareOptions, rows: Rows, limit: TimeLimit, progress: Progress
) -> None:
    """Adds the rows. Raises ServingError, TokentideError, ValueError."""
    if options.serve.save is not None:
        options.serve.save(requests_of(options.case, options.serve))
    async with (
        open_target(options.serve.target, progress.say) as target,
        strategy_switch(target.operations) as switch,
    ):

        async def measure(run: StrategyRun) -> Row:
            return await _measure(run, options, target, switch, progress)

        async def work() -> None:
            await warm_stack(options.serve, target, progress)
            await run_trials(compare_trials(options), rows, limit, measure, progress)

        await (target.stack.run(work()) if target.stack else work())


async def warm_stack(serve: ServeOptions, target: Target, progress: Progress) -> None:
    """The first requests of the load once, cut short: the first strategy must not pay for a cold stack,
    whose first long steps take several times as long."""
    progress.say("warming up the stack")
    case = Case(index=0, concurrency=None, repeat=0)
    requests = [
        replace(request, max_tokens=min(request.max_tokens, NUM_WARM_TOKENS))
        for request in requests_of(case, serve)[:NUM_WARM_REQUESTS]
    ]
    sampling = replace(serve.sampling, cache_salt=uuid.uuid4().hex)
    await run_closed_loop(target.client, requests, NUM_WARM_REQUESTS, sampling)


async def _measure(
    run: StrategyRun,
    options: CompareOptions,
    target: Target,
    switch: StrategySwitch,
    progress: Progress,
) -> Row:
    label = run.strategy.label
    progress.say(f"{label}: switching")
    await switch.set(run.strategy.settings)
    # Also the warm-up's: a salt that no other trial has, not even one that was broken off.
    sampling: Sampling = replace(options.serve.sampling, cache_salt=uuid.uuid4().hex)
    serve = replace(options.serve, sampling=sampling)
    load_before = load_average()
    case = options.case
    requests = requests_of(case, serve)
    progress.say(f"{label}, run {run.repeat + 1} of {options.repeat}")
    measured = await measure_load(case, requests, serve, target, progress)
    row: dict[str, Any] = {
        "case": label,
        "model": target.model,
        "settings": run.strategy.settings.as_json(),
        "concurrency": case.concurrency,
        "repeat": run.repeat,
        "load_average_before": load_before,
    }
    return row | figures(measured)
