"""A static or dynamic batch that runs on a worker, as its driver sees it. Knows nothing of how it is formed."""

from dataclasses import dataclass

from shared.strategy import StrategySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningBatch:
    batch_id: str
    settings: StrategySettings  # the rules it began with hold to its end
    size: int  # members when it began
    members: frozenset[str]  # request ids, of those known to this driver
