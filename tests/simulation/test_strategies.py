"""Strategies in a whole service: batches survive takeovers, deaths and switches; nothing is lost."""

import asyncio

import pytest
from cluster import Cluster
from test_simulation import make_raw, run, settle

from shared.strategy import StrategySettings
from shared.types import FinishReason

STRATEGIES = (
    StrategySettings(name="static", batch_size=4, max_wait_ms=400),
    StrategySettings(name="static", batch_size=3, max_wait_ms=100, release="stream"),
    StrategySettings(name="dynamic", preferred_batch_sizes=(2, 4), max_queue_delay_ms=150),
    StrategySettings(name="dynamic", max_batch_size=5, release="stream", chunk_size=-1),
    StrategySettings(name="continuous", admission="guaranteed", chunk_size=16),
    StrategySettings(name="continuous", refill_delay_ms=200),
)


async def run_under(seed: int, *, switches: bool) -> tuple[Cluster, list[FinishReason | str]]:
    """Requests arrive while a driver and a worker die, under one strategy or under changing ones."""
    cluster = Cluster(seed)
    cluster.auditor.has_token_budget = False
    rng = cluster.rng
    is_over = asyncio.Event()
    await cluster.store.set_strategy(STRATEGIES[seed % len(STRATEGIES)].as_json())

    async def arrive(number: int) -> FinishReason | str:
        await asyncio.sleep(rng.random() * 3)
        return await cluster.client(make_raw(cluster, number))

    async def misfortune() -> None:
        await asyncio.sleep(0.5 + rng.random() * 3)
        address = rng.choice(cluster.addresses)
        driving = cluster.replica_driving(address) or rng.choice(cluster.replica_ids)
        await cluster.kill_replica(driving)
        await asyncio.sleep(rng.random() * 2)
        victim = rng.choice(cluster.addresses)
        await cluster.kill_worker(victim)
        await asyncio.sleep(rng.random() * 4)
        cluster.restart_worker(victim)
        cluster.restart_replica(driving)

    async def switch() -> None:
        while not is_over.is_set():
            await asyncio.sleep(rng.random() * 0.3)  # every few steps
            await cluster.store.set_strategy(rng.choice(STRATEGIES).as_json())

    async with asyncio.timeout(300):
        async with asyncio.TaskGroup() as tasks:
            clients = [tasks.create_task(arrive(number)) for number in range(14)]
            tasks.create_task(misfortune())
            if switches:
                tasks.create_task(switch())
            await asyncio.wait(clients)
            is_over.set()
        await settle(cluster)
    await cluster.stop()
    return cluster, [client.result() for client in clients]


@pytest.mark.parametrize("seed", range(18))
def test_every_strategy_loses_nothing_when_a_driver_and_a_worker_die(seed: int) -> None:
    cluster, ends = run(run_under(seed, switches=False))

    assert cluster.auditor.judge() == []
    assert set(ends) == {FinishReason.LENGTH}
    assert not cluster.store.batches


@pytest.mark.parametrize("seed", range(18))
def test_live_switches_every_few_steps_lose_nothing(seed: int) -> None:
    cluster, ends = run(run_under(seed, switches=True))

    assert cluster.auditor.judge() == []
    assert set(ends) == {FinishReason.LENGTH}
    assert not cluster.store.batches
