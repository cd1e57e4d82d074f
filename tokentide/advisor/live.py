"""What is asked of a running stack: its cost model, its strategy, and whether a prediction holds."""

import json
import math
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from shared.profiles import Profile, load_profile
from shared.strategy import StrategySettings
from tokentide.advisor.figures import figures_of
from tokentide.advisor.judging import Candidate
from tokentide.advisor.options import AdviseOptions
from tokentide.advisor.strategy_command import short_text
from tokentide.bench.compare import OVERHEAD_S, warm_stack
from tokentide.bench.live_progress import LiveProgress
from tokentide.bench.rows import Row, Rows
from tokentide.bench.serve import Progress, measure_load, requests_of
from tokentide.bench.strategy_switch import StrategySwitch, strategy_switch
from tokentide.bench.target import Target, load_average, open_target
from tokentide.bench.trials import TimeLimit, Trial, run_trials
from tokentide.commands.operations_client import OperationsClient
from tokentide.simulator.calibration import CalibrationTarget, calibrate

PROFILE_FILE = "advise-profile.json"  # in the folder of the rows
FIT_SHARE = 0.6  # of the time, at most: the rest is for the search


@asynccontextmanager
async def stack_for(options: AdviseOptions, progress: Progress) -> AsyncIterator[Target | None]:
    """None: nothing is asked of a real one."""
    if not options.needs_stack:
        yield None
        return
    async with open_target(options.serve.target, progress.say) as target:
        yield target


async def current_strategy(target: Target) -> StrategySettings:
    async with OperationsClient(target.operations[0]) as operations:
        return await operations.strategy()


async def profile_for(
    options: AdviseOptions,
    target: Target | None,
    kept: Path,
    limit: TimeLimit,
    progress: LiveProgress,
) -> Profile:
    """The one named, or one fitted to the stack and kept there. Raises ValueError, SettingError."""
    if options.flags.profile:
        return load_profile(options.flags.profile)
    if not kept.exists():
        assert target is not None, "a profile is fitted to a stack"
        left_s = limit.left_s()
        share = math.inf if left_s is None else left_s / 60 * FIT_SHARE
        minutes = min(options.flags.fit_minutes, share)
        progress.tell(f"fitting the cost model: {minutes:.1f} min of loads, then the search")
        profile = await _fitted(options, target, minutes, progress)
        part = kept.with_suffix(".part")
        part.write_text(f"{json.dumps(profile.as_dict(), indent=2)}\n")
        part.replace(kept)  # whole or not at all: a later run takes what is there
    return load_profile(str(kept))


async def _fitted(
    options: AdviseOptions, target: Target, minutes: float, progress: Progress
) -> Profile:
    """Under continuous batching: a batch that waits to be full would hold up the loads."""
    async with (
        OperationsClient(target.operations[0]) as operations,
        strategy_switch(target.operations) as switch,
    ):
        await switch.set(StrategySettings())
        wanted = CalibrationTarget(
            client=target.client,
            operations=operations,
            block_size=options.flags.block_size,
            name="fitted",
        )
        seed = options.serve.spec.seed
        found = await calibrate(wanted, minutes=minutes, seed=seed, progress=progress)
    return found.profile


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    settings: StrategySettings
    repeat: int

    @property
    def key(self) -> str:
        """Beside the simulations, whose keys are settings alone."""
        return f"live {self.settings.as_json()}#{self.repeat}"


def live_trials(candidates: Sequence[Candidate], repeat: int) -> list[Trial[LiveRun]]:
    """In turn, each as often. They should take what was predicted."""
    return [
        Trial(key=run.key, subject=run, expected_s=candidate.figures.duration_s + OVERHEAD_S)
        for number in range(repeat)
        for candidate in candidates
        for run in [LiveRun(settings=candidate.settings, repeat=number)]
    ]


async def verify(
    trials: Sequence[Trial[LiveRun]],
    options: AdviseOptions,
    target: Target,
    rows: Rows,
    limit: TimeLimit,
    progress: Progress,
) -> None:
    """Adds the rows. Raises ServingError, TokentideError, TimeoutError."""
    async with strategy_switch(target.operations) as switch:

        async def measure(run: LiveRun) -> Row:
            return await _measure(run, options, target, switch, progress)

        await warm_stack(options.serve, target, progress)
        await run_trials(trials, rows, limit, measure, progress)


async def _measure(
    run: LiveRun,
    options: AdviseOptions,
    target: Target,
    switch: StrategySwitch,
    progress: Progress,
) -> Row:
    progress.say(f"{short_text(run.settings)}: switching")
    await switch.set(run.settings)
    # A salt of its own: no run finds the prompts of another in the prefix cache.
    sampling = replace(options.serve.sampling, cache_salt=uuid.uuid4().hex)
    serve = replace(options.serve, sampling=sampling)
    load_before = load_average()
    requests = requests_of(options.case, serve)
    measured = await measure_load(options.case, requests, serve, target, progress)
    figures = figures_of(measured, options.flags.judge.slo)
    if not figures.num_ok:
        statuses = ", ".join(sorted({o.status for o in measured.observations}))
        raise ValueError(f"the stack refused every request ({statuses}): --vocabulary, --prompt?")
    row: dict[str, Any] = {"model": target.model, "load_average_before": load_before}
    return row | {"figures": asdict(figures)}
