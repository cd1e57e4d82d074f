"""The simulated engine as the session sees it: a step takes its predicted time, asleep."""

import asyncio

from shared.types import BatchPlan, BlockCounts, MemoryStats, ResidentSequence, StepResult
from worker_service.simulated.engine import SimulatedEngine

LATE_S = 0.005  # a timer may be so late; what it is late by is taken off the next step


class SimulatedCompute:
    """`session_values.Compute` over a SimulatedEngine, on the loop's clock."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self._engine = engine
        self._should_end_s = 0.0  # of the last step, had the timer been exact

    async def execute(self, plan: BatchPlan) -> StepResult:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        is_late = now_s - self._should_end_s < LATE_S
        result = self._engine.execute(plan)
        began_s = self._should_end_s if is_late else now_s
        self._should_end_s = began_s + result.timings.total_ns / 1e9
        await asyncio.sleep(max(0.0, self._should_end_s - loop.time()))
        return result

    def resident(self) -> tuple[ResidentSequence, ...]:
        return self._engine.resident()

    def blocks(self) -> BlockCounts:
        return self._engine.blocks()

    def memory(self) -> MemoryStats:
        return self._engine.memory()

    def forget_all(self) -> None:
        self._engine.forget_all()
