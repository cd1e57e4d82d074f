"""The store loses its last second, or everything: whatever runs is given back, the rest made again."""

import asyncio

import pytest
from cluster import Cluster
from store_loss import empty, restore, saved
from test_simulation import make_raw, run, settle

from shared.types import FinishReason


async def with_loss(
    seed: int, *, loses_all: bool, kills: bool
) -> tuple[Cluster, list[FinishReason | str]]:
    cluster = Cluster(seed)
    cluster.auditor.store_loses_writes = True
    rng = cluster.rng

    async def arrive(number: int) -> FinishReason | str:
        await asyncio.sleep(rng.random() * 3)
        return await cluster.client(make_raw(cluster, number))

    async def lose() -> None:
        await asyncio.sleep(0.5 + rng.random() * 2)
        before = saved(cluster)
        await asyncio.sleep(rng.random())
        if kills:
            await cluster.kill_worker(rng.choice(cluster.addresses))
        if loses_all:
            empty(cluster)
        else:
            restore(cluster, before)
        if kills:
            await asyncio.sleep(rng.random())
            for address, worker in cluster.workers.items():
                if not worker.life.is_alive:
                    cluster.restart_worker(address)

    async with asyncio.timeout(300):
        async with asyncio.TaskGroup() as tasks:
            clients = [tasks.create_task(arrive(number)) for number in range(12)]
            tasks.create_task(lose())
        await settle(cluster)
    await cluster.stop()
    return cluster, [client.result() for client in clients]


@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_streams_go_on_when_the_store_loses_its_last_writes(seed: int, kills: bool) -> None:
    cluster, ends = run(with_loss(seed, loses_all=False, kills=kills))

    assert set(ends) == {FinishReason.LENGTH}
    assert cluster.auditor.judge() == []


@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_streams_go_on_when_the_store_loses_everything(seed: int, kills: bool) -> None:
    cluster, ends = run(with_loss(seed, loses_all=True, kills=kills))

    assert set(ends) == {FinishReason.LENGTH}
    assert cluster.auditor.judge() == []
