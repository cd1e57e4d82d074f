"""What lasts longer than any lease: a store that is away, a worker that does not come back."""

import asyncio

import pytest
from cluster import Cluster
from test_simulation import make_raw, run, settle

from scheduler_service.replica_beats import driver_ranking
from shared.errors import RequestUnfit
from shared.types import FinishReason
from shared.validation import RawRequest

LONG_S = 120.0  # far above the watches' lease and grace together


async def store_away_for_long(seed: int) -> tuple[Cluster, list[FinishReason | str]]:
    cluster = Cluster(seed)
    raws = [make_raw(cluster, number) for number in range(8)]
    async with asyncio.timeout(600), asyncio.TaskGroup() as tasks:
        clients = [tasks.create_task(cluster.client(raw)) for raw in raws]
        await asyncio.sleep(0.2 + cluster.rng.random() / 2)
        cluster.set_store_reachable(False)
        await asyncio.sleep(LONG_S)
        cluster.set_store_reachable(True)
    await settle(cluster)
    await cluster.stop()
    return cluster, [client.result() for client in clients]


@pytest.mark.parametrize("seed", range(8))
def test_streams_outlive_a_store_that_is_away_longer_than_their_watches(seed: int) -> None:
    cluster, ends = run(store_away_for_long(seed))

    assert cluster.auditor.judge() == []
    assert set(ends) == {FinishReason.LENGTH}


async def the_large_worker_dies(seed: int) -> tuple[Cluster, list[str], FinishReason | str]:
    cluster = Cluster(seed, num_blocks=(48, 8))
    prompt = tuple(range(40))
    async with asyncio.timeout(600), asyncio.TaskGroup() as tasks:
        large = [
            tasks.create_task(
                cluster.client(
                    RawRequest(request_id=f"large-{n}", prompt_ids=prompt, max_tokens=600, seed=n)
                )
            )
            for n in range(80)  # more than a window
        ]
        cluster.auditor.unfit = {f"large-{n}" for n in range(80)}
        await asyncio.sleep(2 + cluster.rng.random())
        await cluster.kill_worker("worker-0")
        await asyncio.sleep(5)
        small = await cluster.client(
            RawRequest(request_id="small", prompt_ids=prompt, max_tokens=20, seed=1)
        )
        assert not any(task.done() for task in large), "the large ones have their timeout"
    await cluster.stop()
    return cluster, [str(task.result()) for task in large], small


@pytest.mark.parametrize("seed", range(4))
def test_requests_that_nobody_can_run_block_nobody_and_end(seed: int) -> None:
    cluster, large, small = run(the_large_worker_dies(seed))

    assert small is FinishReason.LENGTH
    assert set(large) == {RequestUnfit.__name__}
    assert cluster.auditor.judge() == []


async def preferred_replica_does_not_reach_it(seed: int) -> tuple[Cluster, int]:
    """How often the worker changed hands in a minute."""
    cluster = Cluster(seed, num_replicas=3)
    worker = cluster.workers["worker-0"]
    incarnation = worker.session.description.incarnation
    preferred = driver_ranking(cluster.replica_ids, incarnation)[0]
    cluster.path(preferred, "worker-0").hold()
    await asyncio.sleep(10)
    before = worker.session.stats().epoch
    ends = await asyncio.gather(*(cluster.client(make_raw(cluster, number)) for number in range(8)))
    await asyncio.sleep(50)
    assert set(ends) == {FinishReason.LENGTH}
    num_hand_overs = worker.session.stats().epoch - before
    await settle(cluster)
    await cluster.stop()
    return cluster, num_hand_overs


@pytest.mark.parametrize("seed", range(4))
def test_a_worker_is_not_handed_over_again_and_again_to_one_that_does_not_reach_it(
    seed: int,
) -> None:
    cluster, num_hand_overs = run(preferred_replica_does_not_reach_it(seed))

    assert cluster.auditor.judge() == []
    assert num_hand_overs <= 2
