"""Switches the strategy of a live pool, and puts the old one back at the end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from shared.strategy import StrategySettings
from tokentide.commands.operations_client import OperationsClient
from tokentide.errors import TokentideError

POLL_S = 0.05
SWITCH_S = 30.0


class StrategySwitch:
    def __init__(self, replicas: Sequence[OperationsClient]) -> None:
        self._replicas = replicas

    async def set(self, settings: StrategySettings) -> None:
        """Returns when every replica plans so. Raises TokentideError, TimeoutError with one line."""
        await self._replicas[0].set_strategy(settings)
        try:
            async with asyncio.timeout(SWITCH_S):
                for replica in self._replicas:
                    while await replica.strategy() != settings:
                        await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise TimeoutError(f"a replica does not follow to {settings.as_json()}") from None


@contextlib.asynccontextmanager
async def strategy_switch(operations: Sequence[str]) -> AsyncIterator[StrategySwitch]:
    """Raises ValueError without an operators' port."""
    if not operations:
        raise ValueError("strategies are switched over the operators' port: give --operations")
    async with contextlib.AsyncExitStack() as stack:
        replicas = [await stack.enter_async_context(OperationsClient(e)) for e in operations]
        before = await replicas[0].strategy()
        try:
            yield StrategySwitch(replicas)
        finally:
            # Where the pool has gone, what was raised says more.
            with contextlib.suppress(TokentideError):
                if await replicas[0].set_strategy(None) != before:  # else it had been nobody's wish
                    await replicas[0].set_strategy(before)
