"""A request that kills whatever worker computes it: quarantined at last, and nobody else suffers."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from cluster import Cluster, OpenStore, SimWorker
from store_model import StoreModel
from test_simulation import make_raw, run, settle

from shared.errors import RequestQuarantined
from shared.strategy import StrategySettings
from shared.types import BatchPlan, FinishReason, StepResult
from shared.validation import RawRequest

POISON = "poison"
STRATEGIES = (
    StrategySettings(),
    StrategySettings(name="static", batch_size=3, max_wait_ms=300),
    StrategySettings(name="dynamic", max_batch_size=4, max_queue_delay_ms=100),
)


def make_deadly(cluster: Cluster, worker: SimWorker) -> None:
    """The worker dies in the step that computes the poison, and comes back soon."""
    execute: Callable[[BatchPlan], Awaitable[StepResult]] = worker.compute.execute
    poisoned: set[int] = set()

    async def deadly(plan: BatchPlan) -> StepResult:
        poisoned.update(a.handle for a in plan.admissions if a.request_id == POISON)
        if any(chunk.handle in poisoned for chunk in plan.chunks):
            asyncio.get_running_loop().create_task(die())
            await asyncio.Event().wait()
        return await execute(plan)

    async def die() -> None:
        await cluster.kill_worker(worker.address)
        await asyncio.sleep(0.5 + cluster.rng.random())
        cluster.restart_worker(worker.address)
        make_deadly(cluster, cluster.workers[worker.address])

    worker.compute.execute = deadly  # type: ignore[method-assign]


async def among_others(
    seed: int, *, open_store: OpenStore = StoreModel, limit_s: float = 600.0
) -> tuple[Cluster, list[FinishReason | str], FinishReason | str]:
    cluster = Cluster(seed, open_store=open_store)
    await cluster.store.set_strategy(STRATEGIES[seed % len(STRATEGIES)].as_json())
    for worker in tuple(cluster.workers.values()):
        make_deadly(cluster, worker)
    cluster.auditor.quarantined = {POISON}

    async def arrive(number: int) -> FinishReason | str:
        await asyncio.sleep(cluster.rng.random() * 6)
        return await cluster.client(make_raw(cluster, number))

    poison = RawRequest(request_id=POISON, prompt_ids=tuple(range(30)), max_tokens=20, seed=1)
    async with asyncio.TaskGroup() as tasks:
        work = [cluster.client(poison), *(arrive(number) for number in range(16))]
        clients = [tasks.create_task(one) for one in work]
        await asyncio.wait(clients, timeout=limit_s)
        for client in clients:
            client.cancel()
    is_over = not any(client.cancelled() for client in clients)
    if is_over:
        await settle(cluster)
    await cluster.stop()
    poisoned, *mates = (c.result() if not c.cancelled() else "nothing" for c in clients)
    return cluster, mates, poisoned


@pytest.mark.parametrize("seed", range(12))
def test_poison_is_quarantined_and_its_mates_go_on(seed: int) -> None:
    cluster, mates, poisoned = run(among_others(seed))

    assert poisoned == RequestQuarantined.__name__
    assert set(mates) == {FinishReason.LENGTH}
    assert cluster.auditor.judge() == []
