"""What the worker's session is given: the engine as it sees it, and its limits."""

from dataclasses import dataclass
from typing import Protocol

from shared.types import BatchPlan, BlockCounts, MemoryStats, ResidentSequence, StepResult


class Compute(Protocol):
    """The engine as the session sees it. Everything but `execute` is called at step boundaries only."""

    async def execute(self, plan: BatchPlan) -> StepResult: ...
    def resident(self) -> tuple[ResidentSequence, ...]: ...
    def blocks(self) -> BlockCounts: ...
    def memory(self) -> MemoryStats: ...
    def forget_all(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    silence_s: float = 2.0  # a driver silent for longer may be replaced
    heartbeat_s: float = 0.5
    hung_s: float = 60.0  # a step this old, and ten times what its plan predicted, never ends
    last_word_s: float = 1.0  # longest wait for posted messages when a driver's stream ends
    max_plans_in_flight: int = 2  # running and waiting together
    max_outgoing: int = (
        256  # messages a driver has not taken yet; above, its stream counts as broken
    )
