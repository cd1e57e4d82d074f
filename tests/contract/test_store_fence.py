"""Who may drive: the fence, on the model and on a real Valkey."""

import pytest
from fakes_store import (
    CAPACITY,
    attach,
    make_row,
    run_all,
    submit_all,
    window_ids,
)

from scheduler_service.store.interface import RequestStore
from scheduler_service.store.values import Fence
from shared.errors import StaleFence, StoreRolledBack


async def test_a_stale_fence_changes_nothing(store: RequestStore) -> None:
    old = await attach(store, epoch=1)
    (record,) = await run_all(store, old, "r1")
    new = await attach(store, epoch=2, replica="replica-b")
    await submit_all(store, "r2")

    for call in (
        store.poll(old),
        store.claim(old, ["r2"]),
        store.commit(old, [make_row(record, 0, (1,))]),
        store.requeue(old, ["r1"]),
        store.detach_worker(old),
    ):
        with pytest.raises(StaleFence):
            await call
    (slice_,) = await store.read_logs([("r1", 0)])
    assert slice_ is not None and (slice_.status, slice_.token_ids) == ("running", ())
    assert await window_ids(store, new) == ["r2"]


async def test_attach_wants_a_higher_epoch_but_may_be_repeated(store: RequestStore) -> None:
    await attach(store, epoch=5)

    await store.attach_driver(Fence("worker-1", 5), "replica-a", CAPACITY)
    with pytest.raises(StaleFence):
        await store.attach_driver(Fence("worker-1", 5), "replica-b", CAPACITY)
    with pytest.raises(StaleFence):
        await store.attach_driver(Fence("worker-1", 4), "replica-a", CAPACITY)
    await store.attach_driver(Fence("worker-1", 6), "replica-b", CAPACITY)


async def test_a_store_that_knows_less_than_a_fence_has_lost_writes(store: RequestStore) -> None:
    await attach(store, "older", epoch=3)
    for fence in (Fence("never-attached", 1), Fence("older", 4)):
        with pytest.raises(StoreRolledBack):
            await store.poll(fence)
    with pytest.raises(StaleFence):
        await store.poll(Fence("older", 2))


async def test_a_takeover_learns_what_runs_with_its_log(store: RequestStore) -> None:
    fence = await attach(store, epoch=1)
    (one, two) = await run_all(store, fence, "r1", "r2")
    await store.commit(fence, [make_row(two, 0, (7, 2**32 - 1))])

    outcome = await store.attach_driver(Fence("worker-1", 2), "replica-b", CAPACITY)

    assert [record.request_id for record in outcome.running] == ["r1", "r2"]
    assert [record.assignment for record in outcome.running] == [one.assignment, two.assignment]
    assert outcome.running[1].log == (7, 2**32 - 1)
    assert outcome.running[1].num_output_tokens == 2
    assert outcome.running[1].payload == b"payload"
