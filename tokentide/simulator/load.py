"""One simulated load: a setup, a workload, what was measured. The entry for tools that search."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields

from scheduler_service.config import SchedulerSettings
from scheduler_service.driver_values import StepTotals
from scheduler_service.planning.snapshot import Limits
from shared.errors import SettingError
from shared.profiles import Profile
from shared.strategy import StrategySettings
from tokentide.bench.load import Observation
from tokentide.bench.operations_watch import Steps
from tokentide.bench.report import Measured
from tokentide.bench.workload import WorkRequest
from tokentide.commands.readings import Totals
from tokentide.simulator.driver import SimulatedDriver
from tokentide.simulator.queue import SimulatedQueue
from tokentide.simulator.requests import STOP_ID, VOCABULARY
from tokentide.simulator.simulation import SimulatedService, Simulation
from worker_service.config import WorkerSettings
from worker_service.simulated.engine import SimulatedEngine
from worker_service.simulated.start import TokenizerFacts, check_simulated, simulated_engine

NUM_SAMPLED_IDS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSetup:
    """A stack that is not there: the settings of its services, as their flags say."""

    profile: Profile
    worker: WorkerSettings
    scheduler: SchedulerSettings
    strategy: StrategySettings = field(default_factory=StrategySettings)
    num_workers: int = 1

    @classmethod
    def of_args(
        cls,
        profile: Profile,
        *,
        worker_args: Sequence[str] = (),
        scheduler_args: Sequence[str] = (),
        strategy: StrategySettings | None = None,
        num_workers: int = 1,
    ) -> "SimulatedSetup":
        """`strategy` None: as the scheduler's own setting says. Raises SettingError: what the services
        would refuse, too."""
        worker = WorkerSettings.read(["--simulate", profile.name, *worker_args], environment={})
        check_simulated(worker)
        scheduler = SchedulerSettings.read(scheduler_args, environment={})
        if strategy is not None and "strategy" in scheduler.model_fields_set:
            raise SettingError("two strategies: leave out the scheduler's own --strategy")
        return cls(
            profile=profile,
            worker=worker,
            scheduler=scheduler,
            strategy=strategy or StrategySettings.parse(scheduler.strategy),
            num_workers=num_workers,
        )

    def __post_init__(self) -> None:
        """As `SetStrategy` refuses them. Raises SettingError."""
        size, limits = self.strategy.largest_batch, self.limits()
        max_sequences = min(
            self.strategy.max_sequences or limits.max_sequences, self.worker.max_sequences
        )
        if size > self.scheduler.claim_window:
            window = self.scheduler.claim_window
            raise SettingError(
                f"a batch of {size} is more than a driver sees (--claim-window {window})"
            )
        if size > max_sequences:
            raise SettingError(
                f"a batch of {size} is more than may run (max_sequences {max_sequences})"
            )
        if self.strategy.preserve_ordering and self.num_workers > 1:
            raise SettingError("preserve_ordering: answers of several workers have no common order")

    def engine(self) -> SimulatedEngine:
        tokenizer = TokenizerFacts(
            vocabulary=VOCABULARY,
            num_sampled_ids=NUM_SAMPLED_IDS,
            eos_token_ids=(STOP_ID,),
            fingerprint="00" * 32,
        )
        return simulated_engine(self.worker, self.profile, tokenizer)

    def limits(self) -> Limits:
        """As a replica derives them for its worker."""
        settings, worker = self.scheduler, self.worker
        budget = min(settings.token_budget, worker.max_step_tokens or settings.token_budget)
        return Limits(
            token_budget=budget,
            max_sequences=min(settings.max_sequences, worker.max_sequences),
            chunk_size=settings.chunk_size,
            max_step_tokens=worker.max_step_tokens,
            max_bypasses=settings.max_bypasses,
            max_prompt_skips=settings.max_prompt_skips,
            max_partial_prompts=settings.max_partial_prompts,
            watermark=settings.watermark,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedLoad:
    """`concurrency` None: open loop, each request at its arrival."""

    requests: Sequence[WorkRequest]
    concurrency: int | None = None
    cut_s: float = 0.0
    seed: int = 0  # of all requests, as clients of `bench serve` give it


@dataclass(slots=True)
class LoadRun:
    """`for _ in run.steps(): ...`, then `run.measured`."""

    setup: SimulatedSetup
    load: SimulatedLoad
    _steps: Steps = field(default_factory=Steps)
    _simulation: Simulation | None = None

    def steps(self, ended: Callable[[Observation], None] | None = None) -> Iterator[None]:
        """Runs it, with a chance for others now and then. Raises ValueError when it never ends."""
        load = self.load
        self._simulation = simulation = _simulation(self.setup, self._steps, load.seed)
        simulation.cut_at(load.cut_s)
        if load.concurrency is None:
            simulation.send_at_arrival(load.requests)
        else:
            simulation.send_at_once(load.requests, load.concurrency)
        yield from simulation.run(ended)

    @property
    def totals(self) -> Totals:
        assert self._simulation is not None, "it has not run"
        return _totals(self._simulation.totals())

    @property
    def measured(self) -> Measured:
        simulation = self._simulation
        assert simulation is not None, "it has not run"
        before = simulation.totals_at_cut
        totals = self.totals
        num_blocks = simulation.service.facts.num_blocks
        return Measured(
            observations=simulation.observations,
            started_s=self.load.cut_s if before is not None else 0.0,
            totals=totals.since(_totals(before)) if before is not None else totals,
            steps=self._steps,
            blocks_per_worker=num_blocks,
            is_open_loop=self.load.concurrency is None,
        )


def simulate_load(setup: SimulatedSetup, load: SimulatedLoad) -> Measured:
    """Raises ValueError when some requests would wait for ever."""
    run = LoadRun(setup, load)
    for _ in run.steps():
        continue
    return run.measured


def _simulation(setup: SimulatedSetup, steps: Steps, seed: int) -> Simulation:
    queue = SimulatedQueue(setup.scheduler.claim_window)
    engines = [setup.engine() for _ in range(setup.num_workers)]
    drivers = [
        SimulatedDriver(
            engine, queue, setup.limits(), lambda: setup.strategy, setup.profile.overheads, steps
        )
        for engine in engines
    ]
    service = SimulatedService(
        facts=engines[0].facts,
        overheads=setup.profile.overheads,
        pool_settings=lambda: setup.strategy,
    )
    return Simulation(drivers, queue, service, steps, seed)


def _totals(sums: StepTotals) -> Totals:
    return Totals(**{f.name: getattr(sums, f.name, 0) for f in fields(Totals)})
