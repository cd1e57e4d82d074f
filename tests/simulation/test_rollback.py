"""The store loses its last second, or everything: whatever runs is given back, the rest made again."""

import asyncio
import copy
from typing import Any

import pytest
from cluster import Cluster
from store_model import StoreModel
from test_simulation import make_raw, run, settle

from shared.types import FinishReason

KEPT = (  # what a restored copy of a store has in it
    "requests",
    "workers",
    "replicas",
    "batches",
    "strategy",
    "num_unread_tokens",
    "beats_until_ms",
    "amnesty_until_ms",
    "capacity",
    "fingerprint",
    "num_arrivals",
    "write_counter",
)


def saved(store: StoreModel) -> dict[str, Any]:
    return {name: copy.deepcopy(getattr(store, name)) for name in KEPT}


def restore(store: StoreModel, state: dict[str, Any]) -> None:
    """As after starting from an older append-only file: the same marker, fewer writes."""
    for name, value in state.items():
        setattr(store, name, value)


def empty(store: StoreModel) -> None:
    """As after FLUSHALL: another instance."""
    fresh = StoreModel(now_ms=store.now_ms, draw_nonce=store.draw_nonce, marker="another")
    restore(store, saved(fresh))
    store.marker = "another"


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
        before = saved(cluster.store)
        await asyncio.sleep(rng.random())
        if kills:
            await cluster.kill_worker(rng.choice(cluster.addresses))
        if loses_all:
            empty(cluster.store)
        else:
            restore(cluster.store, before)
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
