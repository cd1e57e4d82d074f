"""Durability `failover`: what was written or read is at a replica of the store before anybody hears of it.

Replication keeps the order of writes: once a replica has one, it has all that came before, whoever made them. So a
write of no meaning and a WAIT for it, on one connection, speak for every call that was answered before.
"""

import asyncio
from collections.abc import Callable, Sequence

from scheduler_service.store.lane import Argument, Lane
from shared.errors import StoreUnavailable

ACKNOWLEDGE_MS = 1000  # a replica that takes longer has not acknowledged; the call is repeated


class Acknowledging:
    """Calls that come together are spoken for together: a WAIT blocks its connection."""

    def __init__(self, touch: Callable[[], Sequence[Argument]]) -> None:
        """`touch`: the command that writes something without a meaning."""
        self._touch = touch
        self._next: dict[Lane, asyncio.Task[int]] = {}  # rounds that have not begun
        self._turns: dict[Lane, asyncio.Lock] = {}

    async def wait(self, lane: Lane, connection: int) -> None:
        """For what this connection of the lane has answered. Raises StoreUnavailable if no replica has it, or if
        that connection is lost: then it may be another server that acknowledges other writes."""
        if lane not in self._next:
            task = self._next[lane] = asyncio.create_task(self._round(lane))
            task.add_done_callback(_look_at_error)
        acknowledged = await asyncio.shield(self._next[lane])
        if acknowledged != connection:
            raise StoreUnavailable("the store was lost before a replica acknowledged the write")

    async def _round(self, lane: Lane) -> int:
        """The connection that it ran on."""
        async with self._turns.setdefault(lane, asyncio.Lock()):
            del self._next[lane]
            (_, touched), (num_replicas, waited) = await asyncio.gather(
                lane.call_numbered(*self._touch()),
                lane.call_numbered("WAIT", 1, ACKNOWLEDGE_MS),
            )
        if int(num_replicas) < 1 or touched != waited:
            raise StoreUnavailable("no replica of the store has acknowledged the write")
        return waited


def _look_at_error(task: asyncio.Task[int]) -> None:
    """All who waited may have been cancelled."""
    if not task.cancelled():
        task.exception()
