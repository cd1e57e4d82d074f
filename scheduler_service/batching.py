"""What a driver does about the pool's strategy: which rules hold now, and what a new batch is called.

A batch that runs keeps the rules it began with; the pool's own hold for whatever comes next. Ordinary
values and no calls (I12).
"""

from collections.abc import Callable, Sequence

from scheduler_service.planning.batch import RunningBatch
from scheduler_service.planning.live import Admissible
from scheduler_service.planning.snapshot import Limits
from scheduler_service.planning.strategies.interface import Strategy
from scheduler_service.planning.strategies.selection import limits_under, strategy_of
from scheduler_service.store.values import BatchRecord, BatchStart, RunningRecord
from shared.strategy import StrategySettings


class Batching:
    def __init__(self, limits: Limits, pool_settings: Callable[[], StrategySettings]) -> None:
        self._own_limits = limits
        self._pool_settings = pool_settings
        self._apply(pool_settings())

    def follow(self, batch: RunningBatch | None) -> None:
        """See which settings hold now: the running batch's own, or else the pool's."""
        settings = batch.settings if batch is not None else self._pool_settings()
        if settings is not self.settings:
            self._apply(settings)

    def _apply(self, settings: StrategySettings) -> None:
        self.settings = settings
        self.strategy: Strategy = strategy_of(settings)
        self.limits = limits_under(settings, self._own_limits)

    def start(self, batch_id: str) -> BatchStart:
        return BatchStart(
            batch_id=batch_id, settings=self.settings.as_json(), is_held=is_held(self.settings)
        )

    def running_batch(self, batch_id: str, claimed: Sequence[Admissible]) -> RunningBatch | None:
        if not claimed:
            return None
        members = frozenset(request.request_id for request in claimed)
        return RunningBatch(
            batch_id=batch_id, settings=self.settings, size=len(members), members=members
        )


def is_held(settings: StrategySettings) -> bool:
    return settings.name != "continuous" and settings.release == "batch_end"


def running_batch_of(record: BatchRecord, running: Sequence[RunningRecord]) -> RunningBatch:
    """A batch of the driver before."""
    members = frozenset(r.request_id for r in running if r.batch_id == record.batch_id)
    return RunningBatch(
        batch_id=record.batch_id,
        settings=StrategySettings.from_json(record.settings),
        size=record.size,
        members=members,
    )
