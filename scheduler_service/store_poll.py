"""What a driver learns of the store beside its own calls: a slow poll that doorbells hasten.

Over an injected store and the loop's clock (I12).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

from scheduler_service.committer import Committer
from scheduler_service.driver_values import DriverContext
from scheduler_service.store.values import AdoptStatus, DriverReply, RunningRecord
from shared.errors import StoreRolledBack, StoreUnavailable

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What a driver gives back to a store that has lost it."""

    presented: Callable[[], list[RunningRecord]]
    refused: Callable[[str], None]  # this request is no longer ours


class StorePoll:
    """Doorbells are hints; the slow poll covers those that were lost."""

    def __init__(
        self,
        context: DriverContext,
        committer: Committer,
        capacity: int,
        replied: Callable[[DriverReply], None],
        is_live: Callable[[str], bool],
        repair: Repair,
    ) -> None:
        self._context = context
        self._committer = committer
        self._capacity = capacity
        self._replied = replied
        self._is_live = is_live
        self._repair_with = repair
        self._rung = asyncio.Event()
        self._must_reconcile = False
        self._must_repair = False

    def ring(self) -> None:
        self._rung.set()

    def doubt_claims(self) -> None:
        """A claim's answer got lost: it may have been granted all the same."""
        self._committer.is_store_down = self._must_reconcile = True
        self._rung.set()

    def repair(self) -> None:
        """The store has lost writes: nothing is committed or claimed before it is told what runs."""
        self._committer.is_store_down = self._must_repair = True
        self._committer.hold()
        self._rung.set()

    async def run(self) -> None:
        settings, committer = self._context.settings, self._committer
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(settings.poll_s):
                    await self._rung.wait()
            self._rung.clear()
            try:
                if self._must_repair:
                    await self._repair()
                reply = await self._context.store.poll(committer.fence)
                if self._must_reconcile:
                    await self._reconcile()
            except StoreRolledBack:
                self.repair()
                await asyncio.sleep(settings.store_retry_s)
            except StoreUnavailable:
                committer.is_store_down = True
                await asyncio.sleep(settings.store_retry_s)
            else:
                committer.is_store_down = self._must_repair
                self._replied(reply)

    async def _repair(self) -> None:
        """Say again that we drive this worker, and what it holds."""
        context, committer = self._context, self._committer
        await context.store.attach_driver(committer.fence, context.replica_id, self._capacity)
        records = self._repair_with.presented()
        outcome = await context.store.adopt(committer.fence, records)
        for record, status in zip(records, outcome.statuses, strict=True):
            if status != AdoptStatus.ADOPTED:
                self._repair_with.refused(record.request_id)
        num_adopted = outcome.statuses.count(AdoptStatus.ADOPTED)
        logger.log(
            logging.DEBUG if num_adopted == len(records) else logging.WARNING,
            "after a lost connection the store took back %d of the %d requests that run on %s",
            num_adopted,
            len(records),
            committer.fence.incarnation,
        )
        self._must_repair, self._must_reconcile = False, True
        committer.go_on()

    async def _reconcile(self) -> None:
        """Requests that the store gave to this worker without our hearing of it go back."""
        context, committer = self._context, self._committer
        attached = await context.store.attach_driver(
            committer.fence, context.replica_id, self._capacity
        )
        self._must_reconcile = False
        awaited = committer.awaited()
        lost = [
            record.request_id
            for record in attached.running
            if not self._is_live(record.request_id) and record.request_id not in awaited
        ]
        if lost:
            committer.put(committer.durable_step, (), lost)
