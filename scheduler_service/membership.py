"""Which replica drives which worker, and when a worker counts as dead.

Each replica watches every worker. Rendezvous hashing over live replicas gives a worker its preferred
driver; any replica takes an undriven worker after a delay that grows with its rank; a driver that is not
preferred yields once the preferred one is stably there. Safety never depends on any of this: the worker
grants one epoch at a time, and the store checks it.

Ordinary async code over injected ports, store and the loop's clock (I12).
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from scheduler_service.driver import Driver
from scheduler_service.driver_values import StepTotals, WorkerLink
from scheduler_service.pool_beat import BeatSettings, PoolBeat
from scheduler_service.reclaiming import Reclaimer, ReclaimSettings
from scheduler_service.replica_beats import PassedOver, driver_ranking
from scheduler_service.seen_worker import SeenWorker, WorkerPort, until_silent
from scheduler_service.store.interface import RequestStore
from scheduler_service.store.values import PoolTotals
from shared.errors import StoreRefused, StoreUnavailable, WorkerGone, WorkerLost
from shared.seldom import Seldom
from shared.types import WorkerDescription, WorkerStats

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipSettings:
    beat: BeatSettings = field(default_factory=BeatSettings)
    takeover_delay_s: float = 0.3  # times the rank, before an undriven worker is taken
    stable_s: float = 5.0  # the preferred driver must be there so long before others yield to it
    passed_over_s: float = 60.0  # one that did not take a worker is not yielded to for so long
    worker_silence_s: float = 2.0  # no stats for so long: the worker is not there
    stats_interval_s: float = 0.25
    reconnect_s: float = 0.2
    first_reconnect_s: float = 0.02  # to one that was there a moment ago: has it gone?
    resolve_s: float = 2.0
    reclaim: ReclaimSettings = field(default_factory=ReclaimSettings)


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
        cut_off: Callable[[], None],
    ) -> None:
        """`rolled_back`: the store has lost writes. `cut_off`: others have the store, this replica has not; or it
        reaches no worker either."""
        self._replica_id = replica_id
        self._store = store
        self._resolve = resolve
        self._connect = connect
        self._make_driver = make_driver
        self._welcome = welcome
        self._settings = settings
        self._tell_cut_off = cut_off
        self._pool = PoolBeat(
            replica_id,
            store,
            settings.beat,
            rolled_back=rolled_back,
            unanswered=self._leave_if_isolated,
            fingerprints=lambda: [w.description.fingerprint for w in self.workers.values()],
        )
        self._cut_off, self._beats = self._pool.cut_off, self._pool.replicas
        self._passed_over = PassedOver(settings.passed_over_s)
        self._seldom = Seldom()
        self._reclaimer = Reclaimer(
            store, settings.reclaim, seen_here=self._incarnations, reclaimed=self.ring
        )
        store.on_connection_lost(self._doubt_store)
        self._last_there: dict[str, str] = {}  # address -> the incarnation that was seen there
        self._is_draining = False
        self.workers: dict[str, SeenWorker] = {}
        self.ended_totals = StepTotals()  # of drivers that are over

    # -- life --------------------------------------------------------------------------------------

    async def run(self) -> None:
        tending: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pool.run())
            tasks.create_task(self._reclaimer.run())
            while True:
                for address in await self._resolve():
                    if address not in tending or tending[address].done():
                        tending[address] = tasks.create_task(self._tend(address))
                await asyncio.sleep(self._settings.resolve_s)

    @property
    def is_store_there(self) -> bool:
        return self._pool.is_store_there

    @property
    def is_cut_off(self) -> bool:
        """From the store, which others have."""
        return self._cut_off.is_alone

    @property
    def pool(self) -> PoolTotals:
        return self._pool.totals

    def drivers(self) -> list[Driver]:
        return [seen.driver for seen in self.workers.values() if seen.driver is not None]

    def is_first_worker(self, incarnation: str) -> bool:
        """The one that answers where an order is to be preserved: every replica names the same."""
        seen = [worker.description.incarnation for worker in self.workers.values()]
        return incarnation == min(seen, default=incarnation)

    def learn_strategy(self, strategy: str) -> None:
        """Before the next beat says so: it has just been set here."""
        self._pool.totals = replace(self.pool, strategy=strategy)
        self.ring()

    def ring(self) -> None:
        for driver in self.drivers():
            driver.ring()

    def _doubt_store(self) -> None:
        """What answers next may have lost writes, and count as many again before that is noticed."""
        for driver in self.drivers():
            driver.doubt_store()

    def _leave_if_isolated(self) -> None:
        """Neither store nor workers for a while: whatever the reason, streams have nothing to wait for here."""
        if not self.workers and self._cut_off.must_yield(asyncio.get_running_loop().time()):
            self._tell_cut_off()

    async def drain(self) -> None:
        """Yield every worker and take none; returns when all are given up."""
        self._is_draining = True
        for driver in self.drivers():
            driver.give_up("draining")
        while self.drivers():
            await asyncio.sleep(0.02)

    def live_replicas(self) -> list[str]:
        return self._beats.live(asyncio.get_running_loop().time())

    def _incarnations(self) -> set[str]:
        return {seen.stats.incarnation for seen in self.workers.values()}

    # -- workers -----------------------------------------------------------------------------------

    async def _tend(self, address: str) -> None:
        """Watch one address for as long as this replica lives; drive what answers there."""
        port = self._connect(address)
        try:
            while True:
                began_s = asyncio.get_running_loop().time()
                try:
                    await self._watch(port)
                except WorkerLost as error:
                    self._say(logging.INFO, f"worker {address} is not there: {error}")
                    if isinstance(error, WorkerGone) and address in self._last_there:
                        self._reclaimer.note_gone(self._last_there[address])
                except StoreRefused as error:
                    self._say(logging.ERROR, f"worker {address} is not of this pool: {error}")
                except Exception:  # our mistake: this worker is tried anew, the others go on
                    logger.exception("tending %s failed", address)
                settings = self._settings
                was_there = asyncio.get_running_loop().time() - began_s > settings.reconnect_s
                await asyncio.sleep(
                    settings.first_reconnect_s if was_there else settings.reconnect_s
                )
        finally:
            await port.close()

    def _say(self, level: int, text: str) -> None:
        if self._seldom.is_due(text, asyncio.get_running_loop().time()):
            logger.log(level, "%s", text)

    async def _meet(self, port: WorkerPort) -> WorkerDescription:
        description = await port.describe()
        before = self._last_there.get(port.address, description.incarnation)
        if before != description.incarnation:
            self._reclaimer.note_gone(before)
        self._last_there[port.address] = description.incarnation
        await self._attach_pool(description)
        await self._welcome(port, description)
        return description

    async def _watch(self, port: WorkerPort) -> None:
        description = await self._meet(port)
        watching = port.watch_stats(self._settings.stats_interval_s)
        driving: asyncio.Task[None] | None = None
        try:
            async for stats in until_silent(watching, self._settings.worker_silence_s):
                if stats.incarnation != description.incarnation:
                    raise WorkerLost("it has a new incarnation")
                seen = self._see(port, description, stats)
                if self._cut_off.others_have_it(stats):
                    self._tell_cut_off()
                if driving is not None and driving.done():
                    driving = seen.undriven_since_s = None
                if driving is not None:
                    self._yield_if_due(seen)
                elif self._should_take(seen):
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

    def _should_take(self, seen: SeenWorker) -> bool:
        """Once nobody drives it and it is this replica's turn."""
        now_s = asyncio.get_running_loop().time()
        lost_by, seen.last_driver = seen.last_driver, seen.stats.driver
        if seen.stats.driver:
            seen.undriven_since_s = None
            return False
        if seen.undriven_since_s is None:
            seen.undriven_since_s = now_s
            self._beats.doubt(lost_by, now_s)
        if self._is_draining or self._cut_off.must_yield(now_s):
            return False
        incarnation = seen.description.incarnation
        ranking = self._ranking(incarnation)
        rank = ranking.index(self._replica_id)
        if now_s - seen.undriven_since_s < rank * self._settings.takeover_delay_s:
            return False
        self._passed_over.note(incarnation, ranking[:rank], now_s)
        return True

    def _ranking(self, incarnation: str) -> list[str]:
        """Who should drive it, of those that live and take it when they can."""
        now_s = asyncio.get_running_loop().time()
        passed_over = self._passed_over.of(incarnation, now_s)
        live = [replica for replica in self.live_replicas() if replica not in passed_over]
        return driver_ranking(live, incarnation)

    def _yield_if_due(self, seen: SeenWorker) -> None:
        now_s = asyncio.get_running_loop().time()
        if seen.driver is None:
            return
        if self._cut_off.must_yield(now_s):
            seen.driver.give_up("without the store")
            return
        preferred = self._ranking(seen.description.incarnation)[0]
        if preferred == self._replica_id:
            return
        live_s = self._beats.live_for_s(preferred, now_s)
        if live_s >= self._settings.stable_s:
            seen.driver.give_up(f"{preferred} is preferred")

    async def _drive(self, seen: SeenWorker) -> None:
        name = seen.description.name
        logger.info("driving %s at %s (%s)", name, seen.port.address, seen.description.incarnation)
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


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
