"""`tokentide simulate`: from its flags to a report."""

import shlex
from dataclasses import dataclass, replace

from shared.profiles import load_profile
from tokentide.bench.load_report import run_and_show
from tokentide.bench.running import Run, one_line_errors
from tokentide.bench.serve import ServeOptions
from tokentide.bench.serve_options import ServeFlags, serve_options
from tokentide.bench.strategies import parse_strategy
from tokentide.bench.workload import DEFAULT_VOCABULARY
from tokentide.simulator.load import SimulatedSetup
from tokentide.simulator.report import SimulateOptions, run_simulate


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateFlags:
    profile: str
    strategy: str = ""  # empty: as the scheduler's own setting says
    num_workers: int = 1
    serve: ServeFlags


def run_simulation(given: SimulateFlags, *, as_json: bool) -> None:
    with one_line_errors():
        options = simulate_options(given)

        def run(kept: ServeOptions) -> Run:
            return lambda progress: run_simulate(replace(options, serve=kept), progress)

        run_and_show(options.serve, run, as_json)


def simulate_options(given: SimulateFlags) -> SimulateOptions:
    """Raises ValueError, SettingError with one line."""
    named = parse_strategy(given.strategy) if given.strategy else None
    setup = SimulatedSetup.of_args(
        load_profile(given.profile),
        worker_args=shlex.split(given.serve.worker_args),
        scheduler_args=shlex.split(given.serve.scheduler_args),
        strategy=named.settings if named else None,
        num_workers=given.num_workers,
    )
    # Without a vocabulary the packaged model's would be asked for, and that model fetched.
    serve = replace(given.serve, vocabulary=given.serve.vocabulary or DEFAULT_VOCABULARY)
    options = serve_options(serve)
    return SimulateOptions(
        setup=setup, strategy_label=named.label if named else setup.strategy.name, serve=options
    )
