"""Settings to strategies: the one place where a name picks code."""

from dataclasses import replace

from scheduler_service.planning.snapshot import Limits
from scheduler_service.planning.strategies.continuous import ContinuousStrategy
from scheduler_service.planning.strategies.dynamic import DynamicStrategy
from scheduler_service.planning.strategies.interface import Strategy
from scheduler_service.planning.strategies.static import StaticStrategy
from shared.strategy import StrategySettings


def strategy_of(settings: StrategySettings) -> Strategy:
    match settings.name:
        case "static":
            return StaticStrategy(settings.batch_size, settings.max_wait_ms)
        case "dynamic":
            return DynamicStrategy(settings)
        case _:
            is_guaranteed = settings.admission == "guaranteed"
            return ContinuousStrategy(is_guaranteed, settings.refill_delay_ms)


def limits_under(settings: StrategySettings, limits: Limits) -> Limits:
    """A worker's limits with what the pool's settings say instead, within what the worker takes."""
    changes = {
        name: value
        for name in ("token_budget", "max_sequences", "chunk_size")
        if (value := getattr(settings, name)) is not None
    }
    caps = {"token_budget": limits.max_step_tokens, "max_sequences": limits.max_worker_sequences}
    for name, cap in caps.items():
        if cap and name in changes:
            changes[name] = min(changes[name], cap)
    return replace(limits, **changes) if changes else limits
