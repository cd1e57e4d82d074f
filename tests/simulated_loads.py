"""Simulated loads for tests: a device whose every step takes 10 ms, with no overheads."""

from typing import Any

from shared.cost_model import CostModel
from shared.profiles import Overheads, Profile
from tokentide.bench.load import Observation
from tokentide.bench.report import Measured
from tokentide.bench.strategies import parse_strategy
from tokentide.bench.workload import WorkRequest
from tokentide.simulator.load import SimulatedLoad, SimulatedSetup, simulate_load

STEP_S = 0.01


def make_profile(**fields: Any) -> Profile:
    costs = fields.pop("costs", CostModel(base_ns=STEP_S * 1e9))
    overheads = Overheads(**fields.pop("overheads", {}))
    fields = {"block_size": 16, "num_blocks": 200, "max_model_tokens": 4096, **fields}
    named = {"name": "test", "model": "none", "device": "none", "dtype": "none"}
    return Profile(**named, kv_bytes_per_token=100, costs=costs, overheads=overheads, **fields)


def make_work(number: int = 1, *, prompt: int = 8, tokens: int = 4, **fields: Any) -> WorkRequest:
    """Prompts of different numbers share no beginning."""
    ids = tuple(100 + (number * 1000 + place) % 50_000 for place in range(prompt))
    return WorkRequest(prompt=ids, max_tokens=tokens, **fields)


def run_load(
    *requests: WorkRequest,
    strategy: str = "continuous",
    concurrency: int | None = None,
    profile: Profile | None = None,
    cut_s: float = 0.0,
    **setup: Any,
) -> Measured:
    system = SimulatedSetup.of_args(
        profile or make_profile(), strategy=parse_strategy(strategy).settings, **setup
    )
    load = SimulatedLoad(requests=requests, concurrency=concurrency, cut_s=cut_s)
    return simulate_load(system, load)


def times_of(observation: Observation) -> list[float]:
    """When its chunks arrived, in steps."""
    return [round(at_s / STEP_S, 6) for at_s, _ in observation.arrivals]
