"""Settings to figures by the offline simulator. What is evaluated once is kept on the disk."""

from dataclasses import asdict, dataclass, replace

from shared.errors import SettingError
from shared.request_fields import Capacity
from shared.strategy import StrategySettings
from tokentide.advisor.figures import Figures, Slo, figures_of
from tokentide.advisor.judging import Candidate
from tokentide.advisor.space import Bounds, OwnLimits, bounds_of
from tokentide.bench.rows import Row, Rows
from tokentide.bench.trials import TimeLimit
from tokentide.bench.workload import WorkRequest
from tokentide.simulator.load import LoadRun, SimulatedLoad, SimulatedSetup

REQUEST_STEPS_PER_S = 25_000.0  # a guess, until the first simulation says better


class OutOfTime(Exception):
    """The time is up, or a signal came, in the middle of a simulation, which is thrown away."""


@dataclass(slots=True, kw_only=True)
class SimulatedEvaluator:
    """Callable: the figures of a load under settings; None where they cannot serve it."""

    setup: SimulatedSetup  # whatever its strategy
    load: SimulatedLoad
    slo: Slo
    rows: Rows
    limit: TimeLimit
    num_simulated: int = 0
    simulated_s: float = 0.0
    refusal: str = ""  # the last one
    is_stopped: bool = False  # from another thread: what runs is thrown away

    def __call__(self, settings: StrategySettings) -> Figures | None:
        """Raises OutOfTime."""
        key = settings.as_json()
        if key not in self.rows:
            self.rows.add(key, self._simulated(settings))
        kept = self.rows[key]["figures"]
        return Figures(**kept) if kept else None

    def candidate(self, settings: StrategySettings) -> Candidate | None:
        figures = self(settings)
        return Candidate(settings=settings, figures=figures) if figures else None

    @property
    def each_s(self) -> float:
        """Of one simulation: the mean, or a guess."""
        if self.num_simulated:
            return self.simulated_s / self.num_simulated
        requests = self.load.requests
        return sum(request.max_tokens + 1 for request in requests) / REQUEST_STEPS_PER_S

    def _simulated(self, settings: StrategySettings) -> Row:
        clock = self.limit.clock
        began_s = clock()
        row: Row = {"figures": None, "refusal": ""}
        try:
            row["figures"] = asdict(self._run(settings))
        except (SettingError, ValueError) as error:
            row["refusal"] = self.refusal = str(error)
        row["seconds"] = clock() - began_s
        self.num_simulated += 1
        self.simulated_s += row["seconds"]
        return row

    def _run(self, settings: StrategySettings) -> Figures:
        """Raises SettingError for what the services refuse, ValueError for a batch that is never full."""
        self._check_time()
        run = LoadRun(replace(self.setup, strategy=settings), self.load)
        for _ in run.steps():
            self._check_time()
        return figures_of(run.measured, self.slo)

    def _check_time(self) -> None:
        left_s = self.limit.left_s()
        if self.is_stopped or (left_s is not None and left_s <= 0):
            raise OutOfTime


def bounds_for(setup: SimulatedSetup, load: SimulatedLoad) -> Bounds:
    """What the services and the load leave to choose from."""
    scheduler, worker = setup.scheduler, setup.worker
    limits = OwnLimits(
        worker_sequences=worker.max_sequences,
        own_sequences=scheduler.max_sequences,
        claim_window=scheduler.claim_window,
        step_tokens=worker.max_step_tokens,
    )
    return bounds_of(
        at_once=load.concurrency or len(load.requests),
        longest_prompt=max(map(num_prompt_tokens, load.requests)),
        limits=limits,
    )


def num_prompt_tokens(request: WorkRequest) -> int:
    """As the simulator counts them."""
    prompt = request.prompt
    return len(prompt.split()) if isinstance(prompt, str) else len(prompt)


def too_long_text(setup: SimulatedSetup, load: SimulatedLoad) -> str:
    """Of the longest request, why no setting can serve it; empty if one may."""
    longest = max(num_prompt_tokens(request) + request.max_tokens for request in load.requests)
    facts = setup.engine().facts
    room = Capacity(facts.block_size, facts.num_blocks, facts.max_model_tokens).max_request_tokens
    if longest <= room:
        return ""
    return f"the longest has {longest} tokens, prompt and output, and a worker takes {room}"
