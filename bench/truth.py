"""Does the simulator tell the truth? `python -m bench.truth`: three strategies, two ways to arrive.

One stack on the packaged model. In each round a cost model is fitted to it, then each of the six loads is
served and simulated with that model. A load holds if the predicted throughput is within the larger of
10 % and the measured range, and the median TTFT and end-to-end time within 20 %.
"""

import argparse
import json
import random
import sys
import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.table import Table

from shared.profiles import Profile
from shared.strategy import StrategySettings
from tokentide.bench.compare import warm_stack
from tokentide.bench.report import figures
from tokentide.bench.running import run_shown
from tokentide.bench.serve import Case, Progress, ServeOptions, measure_load, requests_of
from tokentide.bench.serve_options import ServeFlags, serve_options
from tokentide.bench.statistics import median
from tokentide.bench.strategies import parse_strategy
from tokentide.bench.strategy_switch import StrategySwitch, strategy_switch
from tokentide.bench.target import Target, open_target
from tokentide.commands.operations_client import OperationsClient
from tokentide.simulator.calibration import CalibrationTarget, calibrate
from tokentide.simulator.load import SimulatedLoad, SimulatedSetup, simulate_load

STRATEGIES = ("continuous", "static:8", "dynamic:8")
BURST = ServeFlags(
    concurrency="32", num_requests=32, prompt="uniform:32-256", output="exponential:64:256"
)
POISSON = replace(BURST, concurrency=None, rate=1.5)
ARRIVALS = {"32 at once": BURST, "Poisson, 1.5/s": POISSON}
NAMES = ("tokens/s", "TTFT p50", "end-to-end p50")
TOLERANCES = (0.10, 0.20, 0.20)
KV_BLOCK = 16


@dataclass(frozen=True, slots=True)
class Load:
    strategy: str
    arrivals: str

    @property
    def name(self) -> str:
        return f"{self.strategy}, {self.arrivals}"


def numbers_of(found: dict[str, Any]) -> tuple[float, ...]:
    latency = found["latency_s"]
    return (
        found["throughput"]["generated_tokens_per_s"],
        latency["ttft"]["p50"],
        latency["end_to_end"]["p50"],
    )


def case_of(options: ServeOptions) -> Case:
    concurrency = None if options.is_open_loop else options.concurrencies[0]
    return Case(index=0, concurrency=concurrency, repeat=0)


async def fit(
    target: Target, switch: StrategySwitch, minutes: float, progress: Progress
) -> Profile:
    await switch.set(StrategySettings())
    await target.watch.read_settled()
    async with OperationsClient(target.operations[0]) as operations:
        wanted = CalibrationTarget(
            client=target.client, operations=operations, block_size=KV_BLOCK, name="fitted"
        )
        return (await calibrate(wanted, minutes=minutes, seed=0, progress=progress)).profile


async def serve(
    load: Load, options: ServeOptions, target: Target, switch: StrategySwitch, progress: Progress
) -> tuple[float, ...]:
    await switch.set(parse_strategy(load.strategy).settings)
    options = replace(options, sampling=replace(options.sampling, cache_salt=uuid.uuid4().hex))
    case = case_of(options)
    measured = await measure_load(case, requests_of(case, options), options, target, progress)
    return numbers_of(figures(measured))


def simulate(load: Load, options: ServeOptions, profile: Profile) -> tuple[float, ...]:
    setup = SimulatedSetup.of_args(profile, strategy=parse_strategy(load.strategy).settings)
    case = case_of(options)
    requests = requests_of(case, options)
    simulated = SimulatedLoad(requests=requests, concurrency=case.concurrency)
    return numbers_of(figures(simulate_load(setup, simulated)))


Rounds = dict[Load, list[tuple[float, ...]]]


async def run(repeat: int, minutes: float, progress: Progress) -> tuple[Rounds, Rounds]:
    loads = [Load(s, a) for s in STRATEGIES for a in ARRIVALS]
    options = {name: serve_options(flags) for name, flags in ARRIVALS.items()}
    measured: Rounds = defaultdict(list)
    predicted: Rounds = defaultdict(list)
    async with (
        open_target(next(iter(options.values())).target, progress.say) as target,
        strategy_switch(target.operations) as switch,
    ):
        await warm_stack(next(iter(options.values())), target, progress)
        for number in range(repeat):
            profile = await fit(target, switch, minutes, progress)
            random.Random(number).shuffle(loads)
            for load in loads:
                progress.say(f"round {number + 1}: {load.name}")
                found = await serve(load, options[load.arrivals], target, switch, progress)
                measured[load].append(found)
                predicted[load].append(simulate(load, options[load.arrivals], profile))
                print(
                    json.dumps(
                        {"load": load.name, "measured": found, "predicted": predicted[load][-1]}
                    ),
                    flush=True,
                )
    return measured, predicted


def verdict(
    measured: Sequence[float], predicted: float, tolerance: float, *, with_range: bool
) -> tuple[float, bool]:
    """Relative error against the median, and whether it is small enough."""
    middle = median(measured)
    error = predicted / middle - 1
    allowed = tolerance
    if with_range:
        allowed = max(allowed, (max(measured) - min(measured)) / middle)
    return error, abs(error) <= allowed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3, help="rounds, at least one")
    parser.add_argument("--fit-minutes", type=float, default=1.0, help="of loads, above 0")
    given = parser.parse_args()
    if given.repeat < 1 or given.fit_minutes <= 0:
        parser.error("--repeat must be at least 1, --fit-minutes above 0")
    print(f"about {given.repeat * (given.fit_minutes + 2.5):.0f} minutes", file=sys.stderr)
    measured, predicted = run_shown(lambda progress: run(given.repeat, given.fit_minutes, progress))
    table = Table("load", *(part for name in NAMES for part in (name, "predicted", "off by")))
    num_missed = 0
    for load, found in sorted(measured.items(), key=lambda item: item[0].name):
        cells = []
        for column, tolerance in enumerate(TOLERANCES):
            values = [row[column] for row in found]
            guess = median([row[column] for row in predicted[load]])
            error, holds = verdict(values, guess, tolerance, with_range=column == 0)
            num_missed += not holds
            cells += [
                f"{median(values):.3g}",
                f"{guess:.3g}",
                f"{error:+.0%}{'' if holds else ' !'}",
            ]
        table.add_row(load.name, *cells)
    Console(width=120).print(table)
    allowed = "tokens/s: the larger of 10 % and the measured range; both times: 20 %"
    missed = f"{num_missed} of {3 * len(measured)} predictions are off by more than they may be"
    print(f"{missed} ({allowed}; marked !)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
