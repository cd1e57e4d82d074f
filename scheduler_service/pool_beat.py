"""This replica's beat in the store, and what the answers tell: who else lives, the queue's totals, and whether the
store is there and still knows what it knew.

Ordinary async code over an injected store and the loop's clock (I12).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from scheduler_service.cut_off import CutOff
from scheduler_service.repair import Continuity
from scheduler_service.replica_beats import ReplicaBeats
from scheduler_service.store.interface import RequestStore
from scheduler_service.store.values import PoolTotals
from shared.errors import StoreRefused, StoreUnavailable

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatSettings:
    beat_s: float = 0.5
    retry_s: float = 0.1  # while the store is away
    replica_silence_s: float = 2.0  # a replica whose beat stands still for so long is gone


class PoolBeat:
    def __init__(
        self,
        replica_id: str,
        store: RequestStore,
        settings: BeatSettings,
        *,
        rolled_back: Callable[[], None],
        unanswered: Callable[[], None],
        fingerprints: Callable[[], Iterable[str]],
    ) -> None:
        """`rolled_back`: the store has lost writes. `unanswered`: a beat has failed. `fingerprints`: of the models
        that the workers here have."""
        self._replica_id = replica_id
        self._store = store
        self._settings = settings
        self._rolled_back = rolled_back
        self._unanswered = unanswered
        self._fingerprints = fingerprints
        self._continuity = Continuity()
        self._answered_s: float | None = None
        self.replicas = ReplicaBeats(replica_id, settings.replica_silence_s)
        self.cut_off = CutOff(replica_id)
        self.is_store_there = False
        self.totals = PoolTotals()

    async def run(self) -> None:
        settings = self._settings
        while True:
            try:
                await self._beat_once()
            except (StoreUnavailable, StoreRefused) as error:
                self._lose(error)
            else:
                self._find()
            await asyncio.sleep(settings.beat_s if self.is_store_there else settings.retry_s)

    def _lose(self, error: Exception) -> None:
        now_s = asyncio.get_running_loop().time()
        if self.is_store_there:
            logger.warning("the store is away: %s", error)
        self.is_store_there = False
        # From its last answer on: a store that is silent says so late.
        self.cut_off.lose(now_s if self._answered_s is None else self._answered_s)
        self._unanswered()

    def _find(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if not self.is_store_there and self._answered_s is not None:
            logger.warning("the store is back, after %.1f s", now_s - self._answered_s)
        self.is_store_there, self._answered_s = True, now_s
        self.cut_off.find()
        self.replicas.note(self.totals.replica_beats, now_s)

    async def _beat_once(self) -> None:
        totals, before = await self._store.beat(self._replica_id), self.totals
        if self._continuity.is_broken_by(totals.marker, totals.write_counter):
            logger.warning(
                "the store has lost writes: marker %s and write %d, were %s and %d",
                totals.marker,
                totals.write_counter,
                before.marker,
                before.write_counter,
            )
            self._rolled_back()
            for fingerprint in tuple(self._fingerprints()):
                await self._store.attach_pool(fingerprint)
            if before.strategy and not totals.strategy:
                await self._store.set_strategy(before.strategy)
                totals = replace(totals, strategy=before.strategy)
        self.totals = totals
