"""Which replica drives which worker, and when a worker counts as dead.

Each replica watches every worker. Rendezvous hashing over live replicas gives a worker its preferred
driver; any replica takes an undriven worker after a delay that grows with its rank; a driver that is not
preferred yields once the preferred one is stably there. Safety never depends on any of this: the worker
grants one epoch at a time, and the store checks it.

Ordinary async code over injected ports, store and the loop's clock (I12).
"""

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from scheduler_service.driver import Driver
from scheduler_service.driver_values import StepTotals, WorkerLink
from scheduler_service.repair import Continuity
from scheduler_service.store.interface import PoolTotals, RequestStore
from shared.errors import StoreRefused, StoreUnavailable, WorkerLost
from shared.types import WorkerDescription, WorkerStats

logger = logging.getLogger(__name__)


class WorkerPort(Protocol):
    """A worker at an address. Raises WorkerLost when it does not answer."""

    address: str

    async def describe(self) -> WorkerDescription: ...
    def watch_stats(self, interval_s: float) -> AsyncIterator[WorkerStats]: ...
    def drive(self) -> WorkerLink: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipSettings:
    beat_s: float = 0.5
    replica_silence_s: float = 2.0  # a replica whose beat stands still for so long is gone
    takeover_delay_s: float = 0.3  # times the rank, before an undriven worker is taken
    stable_s: float = 5.0  # the preferred driver must be there so long before others yield to it
    worker_silence_s: float = 2.0  # no stats for so long: the worker is not there
    stats_interval_s: float = 0.25
    reconnect_s: float = 0.2
    reclaim_s: float = 2.0  # beat and epoch unchanged, and no sight of the worker, for so long
    resolve_s: float = 2.0


@dataclass(slots=True)
class SeenWorker:
    """A worker as this replica sees it now."""

    port: WorkerPort
    description: WorkerDescription
    stats: WorkerStats
    driver: Driver | None = None


def driver_ranking(replica_ids: Sequence[str], incarnation: str) -> list[str]:
    """Rendezvous hashing: replicas by preference for this worker, the preferred first."""

    def weight(replica_id: str) -> bytes:
        return hashlib.sha256(f"{replica_id}\n{incarnation}".encode()).digest()

    return sorted(replica_ids, key=weight, reverse=True)


class Membership:
    def __init__(  # noqa: PLR0913 (all that it is wired to)
        self,
        *,
        replica_id: str,
        store: RequestStore,
        resolve: Callable[[], Awaitable[Sequence[str]]],
        connect: Callable[[str], WorkerPort],
        make_driver: Callable[[WorkerLink, WorkerDescription], Driver],
        welcome: Callable[[WorkerPort, WorkerDescription], Awaitable[None]],
        settings: MembershipSettings,
        rolled_back: Callable[[], None],
    ) -> None:
        self._replica_id = replica_id
        self._store = store
        self._resolve = resolve
        self._connect = connect
        self._make_driver = make_driver
        self._welcome = welcome
        self._settings = settings
        self._rolled_back = rolled_back
        self._continuity = Continuity()
        self._beats: dict[str, tuple[int, float, float]] = {}  # beat, changed at, first seen
        self._still: dict[str, tuple[int, int, float]] = {}  # epoch, beat, unchanged since
        self._is_draining = False
        self.is_store_there = False
        self.workers: dict[str, SeenWorker] = {}
        self.pool = PoolTotals()
        self.ended_totals = StepTotals()  # of drivers that are over

    # -- life --------------------------------------------------------------------------------------

    async def run(self) -> None:
        tending: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._beat())
            tasks.create_task(self._sweep())
            while True:
                for address in await self._resolve():
                    if address not in tending or tending[address].done():
                        tending[address] = tasks.create_task(self._tend(address))
                await asyncio.sleep(self._settings.resolve_s)

    def drivers(self) -> list[Driver]:
        return [seen.driver for seen in self.workers.values() if seen.driver is not None]

    def is_first_worker(self, incarnation: str) -> bool:
        """The one that answers where an order is to be preserved: every replica names the same."""
        seen = [worker.description.incarnation for worker in self.workers.values()]
        return incarnation == min(seen, default=incarnation)

    def learn_strategy(self, strategy: str) -> None:
        """Before the next beat says so: it has just been set here."""
        self.pool = replace(self.pool, strategy=strategy)
        self.ring()

    def ring(self) -> None:
        for driver in self.drivers():
            driver.ring()

    async def drain(self) -> None:
        """Yield every worker and take none; returns when all are given up."""
        self._is_draining = True
        for driver in self.drivers():
            driver.give_up("draining")
        while self.drivers():
            await asyncio.sleep(0.02)

    def live_replicas(self) -> list[str]:
        now_s = asyncio.get_running_loop().time()
        silence_s = self._settings.replica_silence_s
        live = {r for r, (_, at_s, _) in self._beats.items() if now_s - at_s < silence_s}
        return sorted(live | {self._replica_id})

    # -- workers -----------------------------------------------------------------------------------

    async def _tend(self, address: str) -> None:
        """Watch one address for as long as this replica lives; drive what answers there."""
        port = self._connect(address)
        try:
            while True:
                try:
                    await self._watch(port)
                except WorkerLost as error:
                    logger.debug("worker %s: %s", address, error)
                except StoreRefused as error:
                    logger.error("worker %s is not of this pool: %s", address, error)
                except Exception:  # our mistake: this worker is tried anew, the others go on
                    logger.exception("tending %s failed", address)
                await asyncio.sleep(self._settings.reconnect_s)
        finally:
            await port.close()

    async def _watch(self, port: WorkerPort) -> None:
        description = await port.describe()
        await self._attach_pool(description)
        await self._welcome(port, description)
        watching = port.watch_stats(self._settings.stats_interval_s)
        driving: asyncio.Task[None] | None = None
        undriven_s: float | None = None
        try:
            async for stats in _until_silent(watching, self._settings.worker_silence_s):
                if stats.incarnation != description.incarnation:
                    raise WorkerLost("it has a new incarnation")
                seen = self._see(port, description, stats)
                now_s = asyncio.get_running_loop().time()
                if driving is not None and driving.done():
                    driving = undriven_s = None
                if driving is not None:
                    self._yield_to_preferred(seen)
                    continue
                undriven_s = None if stats.driver else (undriven_s or now_s)
                if undriven_s is not None and self._may_take(description, now_s - undriven_s):
                    driving = asyncio.create_task(self._drive(seen))
        finally:
            self.workers.pop(port.address, None)
            if driving is not None:
                await _end(driving)

    async def _attach_pool(self, description: WorkerDescription) -> None:
        try:
            await self._store.attach_pool(description.fingerprint)
        except StoreUnavailable as error:
            raise WorkerLost(f"the store is away: {error}") from error

    def _see(
        self, port: WorkerPort, description: WorkerDescription, stats: WorkerStats
    ) -> SeenWorker:
        seen = self.workers.get(port.address)
        if seen is None:
            seen = self.workers[port.address] = SeenWorker(port, description, stats)
        seen.stats = stats
        return seen

    def _may_take(self, description: WorkerDescription, undriven_s: float) -> bool:
        if self._is_draining:
            return False
        rank = driver_ranking(self.live_replicas(), description.incarnation).index(self._replica_id)
        return undriven_s >= rank * self._settings.takeover_delay_s

    def _yield_to_preferred(self, seen: SeenWorker) -> None:
        preferred = driver_ranking(self.live_replicas(), seen.description.incarnation)[0]
        if preferred == self._replica_id or seen.driver is None:
            return
        _, _, first_s = self._beats[preferred]
        if asyncio.get_running_loop().time() - first_s >= self._settings.stable_s:
            seen.driver.give_up(f"{preferred} is preferred")

    async def _drive(self, seen: SeenWorker) -> None:
        name = seen.description.name
        try:
            seen.driver = driver = self._make_driver(seen.port.drive(), seen.description)
            try:
                reason = await driver.run()
            finally:
                self.ended_totals.add(driver.totals)
            logger.info("no longer driving %s: %s", name, reason)
        except Exception:  # our mistake: the worker keeps its rows, somebody drives it anew
            logger.exception("driving %s failed", name)
            await asyncio.sleep(self._settings.worker_silence_s)  # not again at once
        finally:
            seen.driver = None

    # -- replicas ----------------------------------------------------------------------------------

    async def _beat(self) -> None:
        while True:
            try:
                await self._beat_once()
            except StoreUnavailable:
                self.is_store_there = False
            except StoreRefused as error:
                logger.error("the store is not of this pool any more: %s", error)
                self.is_store_there = False
            else:
                self.is_store_there = True
                self._note_beats(self.pool.replica_beats)
            await asyncio.sleep(self._settings.beat_s)

    async def _beat_once(self) -> None:
        pool, before = await self._store.beat(self._replica_id), self.pool
        if self._continuity.is_broken_by(pool.marker, pool.write_counter):
            logger.warning(
                "the store has lost writes: marker %s, was %s", pool.marker, before.marker
            )
            self._rolled_back()
            for seen in self.workers.values():
                await self._store.attach_pool(seen.description.fingerprint)
            if before.strategy and not pool.strategy:
                await self._store.set_strategy(before.strategy)
                pool = replace(pool, strategy=before.strategy)
        self.pool = pool

    def _note_beats(self, beats: dict[str, int]) -> None:
        now_s = asyncio.get_running_loop().time()
        for replica_id, beat in beats.items():
            known = self._beats.get(replica_id)
            if known is None:
                # Seen once is not seen alive: its beat must move first.
                self._beats[replica_id] = (beat, now_s - self._settings.replica_silence_s, now_s)
            elif known[0] != beat:
                was_live = now_s - known[1] < self._settings.replica_silence_s
                self._beats[replica_id] = (beat, now_s, known[2] if was_live else now_s)
        for replica_id in set(self._beats) - set(beats):
            del self._beats[replica_id]

    # -- dead workers ------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        """Requests of workers that nobody sees return to the queue."""
        while True:
            await asyncio.sleep(self._settings.beat_s)
            with contextlib.suppress(StoreUnavailable):
                incarnations = await self._store.list_workers()
                self._still = {k: v for k, v in self._still.items() if k in incarnations}
                for incarnation in incarnations:
                    await self._sweep_worker(incarnation)

    async def _sweep_worker(self, incarnation: str) -> None:
        seen_here = {seen.stats.incarnation for seen in self.workers.values()}
        stored = await self._store.read_worker_beat(incarnation)
        if stored is None or incarnation in seen_here:
            self._still.pop(incarnation, None)
            return
        now_s = asyncio.get_running_loop().time()
        epoch, beat = stored
        known = self._still.get(incarnation)
        if known is None or known[:2] != (epoch, beat):
            self._still[incarnation] = (epoch, beat, now_s)
        elif now_s - known[2] >= self._settings.reclaim_s:
            requeued = await self._store.reclaim(incarnation, epoch, beat)
            if requeued is not None:
                logger.warning(
                    "worker %s is gone: %d requests requeued", incarnation, len(requeued)
                )
                self.ring()


async def _until_silent(
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


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
