"""`tokentide advise` from beginning to end: cost model, search, verification, report."""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from shared.strategy import StrategySettings
from tokentide.advisor.evaluation import OutOfTime, SimulatedEvaluator, bounds_for, too_long_text
from tokentide.advisor.judging import Candidate, Judge
from tokentide.advisor.live import (
    PROFILE_FILE,
    LiveRun,
    current_strategy,
    live_trials,
    profile_for,
    stack_for,
    verify,
)
from tokentide.advisor.options import AdviseOptions
from tokentide.advisor.report import Found, Report, Verified, advise_report
from tokentide.advisor.search import MAX_REFINED, search
from tokentide.advisor.space import Space
from tokentide.advisor.strategy_command import short_text
from tokentide.bench.live_progress import LiveProgress
from tokentide.bench.outputs import RunFlags
from tokentide.bench.rows import Rows
from tokentide.bench.target import Target
from tokentide.bench.trials import TimeLimit, Trial, expectation, minutes_text

Result = TypeVar("Result")

NAME = "advise"
NUM_VERIFIED = 2  # beside the current setting
GRID_SHARE = 0.6  # of the time; the rest is for the neighbours of the best
SHOW_S = 1.0  # between two signs of life
MIN_GRID = 6  # so that each strategy is tried at all


async def run_advise(options: AdviseOptions, flags: RunFlags, progress: LiveProgress) -> Report:
    """Raises ServingError, TokentideError, ValueError."""
    flags.out.mkdir(parents=True, exist_ok=True)
    async with stack_for(options, progress) as target:
        work = _advise(options, flags, target, progress)
        return await (target.stack.run(work) if target and target.stack else work)


async def _advise(
    options: AdviseOptions, flags: RunFlags, target: Target | None, progress: LiveProgress
) -> Report:
    clock = asyncio.get_running_loop().time
    limit = TimeLimit(clock=clock, started_s=clock(), minutes=flags.minutes)
    kept = flags.out / PROFILE_FILE
    if flags.fresh:
        kept.unlink(missing_ok=True)
    profile = await profile_for(options, target, kept, limit, progress)
    setup = options.setup(profile)
    current = await current_strategy(target) if target else setup.strategy
    rows = Rows.open(flags.out / f"{NAME}.jsonl", options.settings(profile), fresh=flags.fresh)
    evaluator = SimulatedEvaluator(
        setup=setup,
        load=options.load(),
        slo=options.flags.judge.slo,
        rows=rows,
        limit=limit,
    )
    finding = await _search(current, evaluator, options.flags.judge, progress)
    _check_served(finding, evaluator)
    verified: Sequence[Verified] = ()
    if options.flags.verify:
        assert target is not None, "a stack is needed to verify"
        verified = await _verified(finding, options, target, rows, progress)
    return advise_report(
        finding, options, profile, verified, list(target.operations) if target else []
    )


async def _search(
    current: StrategySettings, evaluator: SimulatedEvaluator, judge: Judge, progress: LiveProgress
) -> Found:
    """Goes as far as the time allows. Raises ValueError if that is not far enough to say anything."""
    space = Space(bounds=bounds_for(evaluator.setup, evaluator.load))
    plan = _Plan(num_grid=len(space.coarse()), evaluator=evaluator)
    progress.tell(plan.expectation())
    candidates: list[Candidate] = []
    now: Candidate | None = None
    is_complete = False
    try:
        now = await _apart(lambda: evaluator.candidate(current), evaluator)
        known = [now] if now else []
        candidates += known
        num_coarse = plan.num_coarse()
        found = search(space, evaluator, judge, known=known, num_coarse=num_coarse)
        while candidate := await _apart(lambda: next(found, None), evaluator):
            candidates.append(candidate)
            plan.show(candidates[-1], len(candidates), progress)
        is_complete = num_coarse is None
    except OutOfTime:
        pass
    if not candidates:
        why = evaluator.refusal or "not one simulation ended in time: --minutes, --num-requests"
        raise ValueError(f"nothing can be said of this load: {why}")
    return Found(
        current=now, current_settings=current, candidates=candidates, is_complete=is_complete
    )


def _check_served(found: Found, evaluator: SimulatedEvaluator) -> None:
    """Raises ValueError where nobody is served, and so nothing is better than anything else."""
    if any(candidate.figures.num_ok for candidate in found.candidates):
        return
    why = too_long_text(evaluator.setup, evaluator.load) or "each is refused or fails"
    raise ValueError(f"no setting serves one request of this load: {why}")


async def _apart(work: Callable[[], Result], evaluator: SimulatedEvaluator) -> Result:
    """In a thread: a stop signal is heard in the middle of a simulation, too."""
    try:
        return await asyncio.to_thread(work)
    except asyncio.CancelledError:
        evaluator.is_stopped = True  # the thread ends soon, and is waited for
        raise


@dataclass(slots=True, kw_only=True)
class _Plan:
    """How many simulations there will be, and how long they take."""

    num_grid: int
    evaluator: SimulatedEvaluator
    shown_s: float = -math.inf  # when

    @property
    def num_all(self) -> int:
        return 1 + self.num_grid + MAX_REFINED

    def expectation(self) -> str:
        minutes = self.evaluator.limit.minutes
        bound = f"; stops after {minutes:g} min" if minutes is not None else ""
        expected = minutes_text(self.num_all * self.evaluator.each_s)
        return f"at most {self.num_all} simulations, about {expected}, a guess{bound}"

    def num_coarse(self) -> int | None:
        """Of the grid. None: all of it, the time is enough."""
        left_s = self.evaluator.limit.left_s()
        affordable = self.num_grid
        if left_s is not None:
            affordable = int(left_s * GRID_SHARE / self.evaluator.each_s)
        return None if affordable >= self.num_grid else max(MIN_GRID, affordable)

    def show(self, candidate: Candidate, num_done: int, progress: LiveProgress) -> None:
        """Now and then: simulations may take milliseconds."""
        limit = self.evaluator.limit
        if limit.clock() < self.shown_s + SHOW_S:
            return
        self.shown_s = limit.clock()
        expected_s = max(0, self.num_all - num_done) * self.evaluator.each_s
        left = minutes_text(min(limit.left_s() or math.inf, expected_s))
        progress.say(
            f"simulated {num_done} of at most {self.num_all}, at most {left} left; "
            f"last: {short_text(candidate.settings)}"
        )


async def _verified(
    found: Found, options: AdviseOptions, target: Target, rows: Rows, progress: LiveProgress
) -> list[Verified]:
    """The current setting and the best two. Not bounded: it takes as long as the loads."""
    wanted = {c.key: c for c in [found.current] if c is not None}
    best = options.flags.judge.ranked(found.candidates)
    wanted |= {c.key: c for c in best if c.key not in wanted}
    chosen = list(wanted.values())[: NUM_VERIFIED + (found.current is not None)]
    trials: list[Trial[LiveRun]] = live_trials(chosen, options.flags.repeat)
    clock = asyncio.get_running_loop().time
    limit = TimeLimit(clock=clock, started_s=clock())
    progress.tell("verifying: " + expectation(trials, rows, limit))
    await verify(trials, options, target, rows, limit, progress)
    return [
        Verified(
            candidate=candidate,
            measured=[
                rows[trial.key]["figures"]
                for trial in trials
                if trial.subject.settings == candidate.settings
            ],
        )
        for candidate in chosen
    ]
