"""A seeded history of one service: what arrives, and everything that may go wrong meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable

from cluster import Cluster
from store_loss import empty, restore, saved
from test_simulation import make_raw, settle

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

    def __init__(self, seed: int) -> None:
        self.cluster = Cluster(seed)
        self.rng = self.cluster.rng
        self.ends: dict[str, FinishReason | str] = {}
        self.faults: list[str] = []

    async def run(self) -> None:
        rng, cluster = self.rng, self.cluster
        kinds = rng.choices(
            list(FAULTS), [weight for weight, _ in FAULTS.values()], k=rng.randint(1, 4)
        )
        self.faults = kinds
        cluster.auditor.store_loses_writes = any(kind in LOSSES for kind in kinds)
        async with asyncio.timeout(LIMIT_S):
            async with asyncio.TaskGroup() as tasks:
                for number in range(rng.randint(4, 12)):
                    tasks.create_task(self._client(number))
                for kind in kinds:
                    tasks.create_task(self._fault(kind))
            await settle(cluster)
        await cluster.stop()

    async def _client(self, number: int) -> None:
        await asyncio.sleep(self.rng.random() * 3)
        raw = make_raw(self.cluster, number)
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
        await asyncio.sleep(self.rng.random() * 8)
        replica.store.is_reachable = True

    async def store_rolls_back(self) -> None:
        before = saved(self.cluster.store)
        await asyncio.sleep(self.rng.random())
        restore(self.cluster.store, before)

    async def store_is_emptied(self) -> None:
        empty(self.cluster.store)

    async def switch_strategy(self) -> None:
        await self.cluster.store.set_strategy(self.rng.choice(STRATEGIES).as_json())


FAULTS: dict[str, tuple[float, Callable[[History], Awaitable[None]]]] = {
    "kill_replica": (3, History.kill_replica),
    "kill_driver": (4, History.kill_driver),
    "kill_worker": (4, History.kill_worker),
    "kill_all": (1, History.kill_all),
    "stop_replica": (3, History.stop_replica),
    "stop_worker": (3, History.stop_worker),
    "store_away": (2, History.store_away),
    "store_away_for_one": (2, History.store_away_for_one),
    "store_rolls_back": (1, History.store_rolls_back),
    "store_is_emptied": (0.5, History.store_is_emptied),
    "switch_strategy": (2, History.switch_strategy),
}
LOSSES = ("store_rolls_back", "store_is_emptied")


def judge(history: History) -> list[str]:
    """What was wrong with it."""
    found = history.cluster.auditor.judge()
    for name, end in history.ends.items():
        if end is not FinishReason.LENGTH:
            found.append(f"I9: {name} ended as {end}")
    return found
