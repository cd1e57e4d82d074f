"""One step's plan from one snapshot: the same function in the service, the simulator and the tests.

Knows nothing of workers, the store or time.
"""

from scheduler_service.planning.snapshot import Decision, Snapshot
from scheduler_service.planning.strategies.continuous import ContinuousStrategy
from scheduler_service.planning.strategies.interface import Strategy

_CONTINUOUS = ContinuousStrategy()


def plan_step(snapshot: Snapshot, strategy: Strategy = _CONTINUOUS) -> Decision:
    return strategy.plan(snapshot)
