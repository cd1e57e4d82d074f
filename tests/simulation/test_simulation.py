"""Kills of drivers and workers under load, seeded: every stream goes on, nothing lost, repeated or changed."""

import asyncio

import pytest
from cluster import Cluster
from virtual_clock import VirtualClockLoop

from shared.types import FinishReason
from shared.validation import RawRequest

NUM_SEEDS = 60
RUN_S = 300.0  # virtual


def run(scenario):
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        return runner.run(scenario)


def make_raw(cluster: Cluster, number: int) -> RawRequest:
    rng = cluster.rng
    prompt = tuple(rng.randrange(1000) for _ in range(rng.randint(1, 200)))
    return RawRequest(
        request_id=f"request-{number}",
        prompt_ids=prompt,
        max_tokens=rng.randint(1, 60),
        seed=rng.getrandbits(64) if rng.random() < 0.8 else None,
        priority=rng.choice((0, 0, 0, -1, 5)),
    )


async def kill_a_driver_and_a_worker(seed: int) -> tuple[Cluster, list[FinishReason | str]]:
    cluster = Cluster(seed)
    rng = cluster.rng

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

    async with asyncio.timeout(RUN_S):
        async with asyncio.TaskGroup() as tasks:
            clients = [tasks.create_task(arrive(number)) for number in range(12)]
            tasks.create_task(misfortune())
        await settle(cluster)
    await cluster.stop()
    return cluster, [client.result() for client in clients]


async def settle(cluster: Cluster) -> None:
    """Until every request has ended and the workers have let go of everything."""
    while not await cluster.auditor.read_ends(cluster.store):
        await asyncio.sleep(1.0)
    while any(w.session.stats().blocks.held for w in cluster.workers.values()):
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("seed", range(NUM_SEEDS))
def test_streams_go_on_when_a_driver_and_a_worker_are_killed(seed):
    cluster, ends = run(kill_a_driver_and_a_worker(seed))

    assert cluster.auditor.judge() == []
    assert set(ends) == {FinishReason.LENGTH}


def test_a_run_is_repeated_exactly_by_its_seed():
    first, _ = run(kill_a_driver_and_a_worker(7))
    second, _ = run(kill_a_driver_and_a_worker(7))

    assert first.store.write_counter == second.store.write_counter
    assert first.auditor.num_delivered == second.auditor.num_delivered
