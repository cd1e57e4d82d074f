"""A worker as a replica sees it: its port, its stats, and when they have stopped coming."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from scheduler_service.driver import Driver
from scheduler_service.driver_values import WorkerLink
from shared.errors import WorkerLost
from shared.types import WorkerDescription, WorkerStats


class WorkerPort(Protocol):
    """A worker at an address. Raises WorkerLost when it does not answer, WorkerGone if nobody is there."""

    address: str

    async def describe(self) -> WorkerDescription: ...
    def watch_stats(self, interval_s: float) -> AsyncIterator[WorkerStats]: ...
    def drive(self) -> WorkerLink: ...
    async def close(self) -> None: ...


@dataclass(slots=True)
class SeenWorker:
    """A worker as this replica sees it now."""

    port: WorkerPort
    description: WorkerDescription
    stats: WorkerStats
    driver: Driver | None = None  # ours
    last_driver: str = ""  # the replica that drove it when last heard
    undriven_since_s: float | None = None


async def until_silent(
    stats: AsyncIterator[WorkerStats], silence_s: float
) -> AsyncIterator[WorkerStats]:
    """The same, but silence ends it as WorkerLost."""
    while True:
        try:
            async with asyncio.timeout(silence_s):
                yield_value = await anext(stats)
        except StopAsyncIteration as error:
            raise WorkerLost("its stats ended") from error
        except TimeoutError as error:
            raise WorkerLost("silent") from error
        yield yield_value
