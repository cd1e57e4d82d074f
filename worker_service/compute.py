"""The engine on its own thread, so that the event loop is never blocked by a step."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from shared.types import BatchPlan, BlockCounts, MemoryStats, ResidentSequence, StepResult
from worker_service.engine.engine import Engine


class ThreadCompute:
    """`session_values.Compute` over an Engine. All but `execute` is called between steps only."""

    def __init__(self, engine: Engine, thread: ThreadPoolExecutor) -> None:
        self._engine = engine
        self._thread = thread

    async def execute(self, plan: BatchPlan) -> StepResult:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._engine.execute, plan)

    def resident(self) -> tuple[ResidentSequence, ...]:
        return self._engine.resident()

    def blocks(self) -> BlockCounts:
        return self._engine.blocks()

    def memory(self) -> MemoryStats:
        return self._engine.memory()

    def forget_all(self) -> None:
        self._engine.forget_all()
