"""A seeded history of one service: what arrives, and everything that may go wrong meanwhile."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

from cluster import NOBODY_ANSWERED, Cluster, OpenStore
from store_loss import empty, restore, saved
from store_model import StoreModel
from test_simulation import make_raw, settle

from shared.errors import DataLoss
from shared.strategy import StrategySettings
from shared.types import FinishReason

HORIZON_S = 5.0  # faults begin within so long
LIMIT_S = 900.0
STRATEGIES = (
    StrategySettings(),
    StrategySettings(name="static", batch_size=3, max_wait_ms=300),
    StrategySettings(name="dynamic", max_batch_size=4, max_queue_delay_ms=100, release="stream"),
    StrategySettings(chunk_size=16, admission="guaranteed"),
)


class History:
    """`run(seed)`; afterwards `cluster.auditor` and `ends` tell what came of it."""

    def __init__(
        self, seed: int, open_store: OpenStore = StoreModel, faults: Sequence[str] = ()
    ) -> None:
        """`faults`: these, instead of one to four drawn ones."""
        source = random.Random(f"faults of {seed}")
        weights = [weight for weight, _ in FAULTS.values()]
        drawn = source.choices(list(FAULTS), weights, k=source.randint(1, 4))
        self.faults = list(faults) or drawn
        self.cluster = Cluster(seed, is_divergent=source.random() < 0.5, open_store=open_store)
        self.cluster.auditor.store_loses_writes = any(kind in LOSSES for kind in self.faults)
        self.rng = self.cluster.rng
        self.ends: dict[str, FinishReason | str] = {}

    async def run(self) -> None:
        rng, cluster = self.rng, self.cluster
        async with asyncio.timeout(LIMIT_S):
            async with asyncio.TaskGroup() as tasks:
                for number in range(rng.randint(4, 12)):
                    tasks.create_task(self._client(number))
                for kind in self.faults:
                    tasks.create_task(self._fault(kind))
            await settle(cluster)
        await cluster.stop()

    async def _client(self, number: int) -> None:
        await asyncio.sleep(self.rng.random() * 3)
        raw = make_raw(self.cluster, number)
        if self.rng.random() < 0.1:
            await self.cluster.leaving_client(raw, after=self.rng.random() * 2)
            return
        self.ends[raw.request_id] = await self.cluster.client(raw)

    async def _fault(self, kind: str) -> None:
        await asyncio.sleep(self.rng.random() * HORIZON_S)
        await FAULTS[kind][1](self)

    # -- faults ------------------------------------------------------------------------------------

    async def kill_replica(self) -> None:
        name = self.rng.choice(self.cluster.replica_ids)
        await self.cluster.kill_replica(name)
        await asyncio.sleep(self.rng.random() * 4)
        self.cluster.restart_replica(name)

    async def kill_driver(self) -> None:
        cluster = self.cluster
        address = self.rng.choice(cluster.addresses)
        name = cluster.replica_driving(address) or self.rng.choice(cluster.replica_ids)
        await cluster.kill_replica(name)
        await asyncio.sleep(self.rng.random() * 4)
        cluster.restart_replica(name)

    async def kill_worker(self) -> None:
        address = self.rng.choice(self.cluster.addresses)
        await self.cluster.kill_worker(address)
        await asyncio.sleep(self.rng.random() * 4)
        self.cluster.restart_worker(address)

    async def drain_worker(self) -> None:
        cluster, address = self.cluster, self.rng.choice(self.cluster.addresses)
        await cluster.drain_worker(address)
        await asyncio.sleep(self.rng.random() * 2)
        cluster.restart_worker(address)

    async def drain_replica(self) -> None:
        cluster, name = self.cluster, self.rng.choice(self.cluster.replica_ids)
        await cluster.drain_replica(name)
        await asyncio.sleep(self.rng.random() * 2)
        cluster.restart_replica(name)

    async def kill_all(self) -> None:
        cluster = self.cluster
        for name in cluster.replica_ids:
            await cluster.kill_replica(name)
        for address in cluster.addresses:
            await cluster.kill_worker(address)
        await asyncio.sleep(self.rng.random() * 2)
        for name in cluster.replica_ids:
            cluster.restart_replica(name)
        for address in cluster.addresses:
            cluster.restart_worker(address)

    async def stop_replica(self) -> None:
        life = self.cluster.replicas[self.rng.choice(self.cluster.replica_ids)].life
        await self.cluster.cut_off(life, self.rng.random() * 6)

    async def stop_worker(self) -> None:
        life = self.cluster.workers[self.rng.choice(self.cluster.addresses)].life
        await self.cluster.cut_off(life, self.rng.random() * 6)

    async def store_away(self) -> None:
        self.cluster.set_store_reachable(False)
        await asyncio.sleep(self.rng.random() * 8)
        self.cluster.set_store_reachable(True)

    async def store_away_for_one(self) -> None:
        replica = self.cluster.replicas[self.rng.choice(self.cluster.replica_ids)]
        replica.store.is_reachable = False
        await asyncio.sleep(self.rng.random() * self.rng.choice((8, 40)))
        replica.store.is_reachable = True

    async def store_loses_calls(self) -> None:
        """Connections to it break again and again, some after the call was sent."""
        replica = self.cluster.replicas[self.rng.choice(self.cluster.replica_ids)]
        replica.store.loss = 0.2 + 0.4 * self.rng.random()
        await asyncio.sleep(self.rng.random() * 4)
        replica.store.loss = 0.0

    async def cut_path(self) -> None:
        """One replica and one worker do not reach each other; both reach all others."""
        cluster = self.cluster
        path = cluster.path(
            self.rng.choice(cluster.replica_ids), self.rng.choice(cluster.addresses)
        )
        await cluster.cut_off(path, self.rng.random() * 6)

    async def reset_connections(self) -> None:
        lives = [
            part.life for part in (*self.cluster.replicas.values(), *self.cluster.workers.values())
        ]
        for _ in range(self.rng.randint(1, 5)):
            self.rng.choice(lives).reset_links()
            await asyncio.sleep(self.rng.random())

    async def repeat_plans(self) -> None:
        cluster = self.cluster
        paths = [cluster.path(r, a) for r in cluster.replica_ids for a in cluster.addresses]
        for path in paths:
            path.repeats_plans = True
        await asyncio.sleep(self.rng.random() * 2)
        for path in paths:
            path.repeats_plans = False

    async def fail_a_row(self) -> None:
        self.cluster.workers[self.rng.choice(self.cluster.addresses)].compute.fail_a_row()

    async def store_rolls_back(self) -> None:
        before = saved(self.cluster)
        await asyncio.sleep(self.rng.random())
        restore(self.cluster, before)

    async def store_rolls_back_as_a_worker_dies(self) -> None:
        cluster, address = self.cluster, self.rng.choice(self.cluster.addresses)
        before = saved(cluster)
        await asyncio.sleep(self.rng.random())
        await cluster.kill_worker(address)
        restore(cluster, before)
        await asyncio.sleep(self.rng.random())
        cluster.restart_worker(address)

    async def store_rolls_back_over_a_reclaim(self) -> None:
        """A worker counts as dead, its requests run elsewhere; then nobody has ever said so."""
        cluster = self.cluster
        worker = cluster.workers[self.rng.choice(cluster.addresses)]
        incarnation = worker.session.description.incarnation
        cutting = asyncio.create_task(cluster.cut_off(worker.life, 7.0))
        before = saved(cluster)
        while not cutting.done():
            await asyncio.sleep(0.2)
            book = cluster.auditor.witness.workers.get(incarnation)
            if book is not None and book.is_dead:
                await asyncio.sleep(self.rng.random())
                restore(cluster, before)
                break
            before = saved(cluster)
        await cutting

    async def long_step(self) -> None:
        """Far longer than any heartbeat; nobody may take it for death."""
        worker = self.cluster.workers[self.rng.choice(self.cluster.addresses)]
        worker.compute.extra_s = 1 + 19 * self.rng.random()

    async def store_is_emptied(self) -> None:
        empty(self.cluster)

    async def switch_strategy(self) -> None:
        await self.cluster.store.set_strategy(self.rng.choice(STRATEGIES).as_json())


FAULTS: dict[str, tuple[float, Callable[[History], Awaitable[None]]]] = {
    "kill_replica": (3, History.kill_replica),
    "kill_driver": (4, History.kill_driver),
    "kill_worker": (4, History.kill_worker),
    "drain_worker": (3, History.drain_worker),
    "drain_replica": (2, History.drain_replica),
    "kill_all": (1, History.kill_all),
    "stop_replica": (3, History.stop_replica),
    "stop_worker": (3, History.stop_worker),
    "store_away": (2, History.store_away),
    "store_away_for_one": (2, History.store_away_for_one),
    "store_loses_calls": (3, History.store_loses_calls),
    "cut_path": (3, History.cut_path),
    "reset_connections": (3, History.reset_connections),
    "repeat_plans": (1, History.repeat_plans),
    "fail_a_row": (1, History.fail_a_row),
    "store_rolls_back": (1, History.store_rolls_back),
    "store_rolls_back_as_a_worker_dies": (0.5, History.store_rolls_back_as_a_worker_dies),
    "store_rolls_back_over_a_reclaim": (0.5, History.store_rolls_back_over_a_reclaim),
    "store_is_emptied": (0.5, History.store_is_emptied),
    "long_step": (2, History.long_step),
    "switch_strategy": (2, History.switch_strategy),
}
LOSSES = tuple(name for name in FAULTS if "rolls_back" in name or "emptied" in name)


def judge(history: History) -> list[str]:
    """What was wrong with it."""
    auditor = history.cluster.auditor
    found = auditor.judge()
    for name, end in history.ends.items():
        may_differ = auditor.is_divergent and auditor.store_loses_writes
        is_right = end in (FinishReason.LENGTH, NOBODY_ANSWERED)
        is_right |= may_differ and end == DataLoss.__name__
        if not is_right and name not in auditor.failed:
            found.append(f"I9: {name} ended as {end}")
    return found
