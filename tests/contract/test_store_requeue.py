"""What returns to the queue, on the model and on a real Valkey."""

import pytest
from fakes_store import (
    CAPACITY,
    attach,
    make_row,
    run_all,
    submit_all,
)

from scheduler_service.store.interface import RequestStore
from scheduler_service.store.values import Fence
from shared.errors import StaleFence


async def test_a_requeued_request_keeps_its_rank_and_its_log(store: RequestStore) -> None:
    fence = await attach(store)
    (record,) = await run_all(store, fence, "r1")
    await submit_all(store, "r2")
    await store.commit(fence, [make_row(record, 0, (1, 2, 3))])

    reply = await store.requeue(fence, ["r1", "r2", "unknown"])

    first, second = reply.window.entries
    assert (first.request_id, first.num_output_tokens, second.request_id) == ("r1", 3, "r2")
    assert reply.window.num_waiting_tokens == 23
    (again,) = (await store.claim(fence, ["r1"])).claimed
    assert again.log == (1, 2, 3)


async def test_reclaim_is_refused_while_the_worker_beats(store: RequestStore) -> None:
    fence = await attach(store)
    seen = await store.read_worker_beat("worker-1")
    assert seen is not None
    await store.commit(fence, [])

    assert await store.reclaim("worker-1", *seen) is None
    assert await store.reclaim("unknown", 1, 1) is None
    assert await store.list_workers() == ("worker-1",)


async def test_reclaim_tombstones_and_returns_the_requests_in_front(store: RequestStore) -> None:
    fence, other = await attach(store, "worker-1"), await attach(store, "worker-2")
    (record, _) = await run_all(store, fence, "r1", "r2")
    await submit_all(store, "r3")
    seen = await store.read_worker_beat("worker-1")
    assert seen is not None

    assert await store.reclaim("worker-1", *seen) == ("r1", "r2")

    window = (await store.poll(other)).window
    assert [(e.request_id, e.attempts) for e in window.entries] == [("r1", 1), ("r2", 1), ("r3", 0)]
    assert window.num_running == 0
    assert await store.list_workers() == ("worker-2",)
    assert await store.read_worker_beat("worker-1") is None
    assert await store.reclaim("worker-1", *seen) == ()
    with pytest.raises(StaleFence):
        await store.commit(fence, [make_row(record, 0, (1,))])
    with pytest.raises(StaleFence):
        await store.attach_driver(Fence("worker-1", 99), "replica-a", CAPACITY)


async def test_a_committed_token_resets_attempts_and_preemption_does_not_touch_them(
    store: RequestStore,
) -> None:
    await run_all(store, await attach(store, "worker-1"), "r1")
    await store.reclaim("worker-1", *(await store.read_worker_beat("worker-1") or (0, 0)))
    fence = await attach(store, "worker-2")
    (record,) = (await store.claim(fence, ["r1"])).claimed
    assert record.attempts == 1

    await store.commit(fence, [make_row(record, 0, ())])
    (entry,) = (await store.requeue(fence, ["r1"])).window.entries
    assert entry.attempts == 1
    (record,) = (await store.claim(fence, ["r1"])).claimed
    await store.commit(fence, [make_row(record, 0, (1,))])
    (running,) = (await store.attach_driver(fence, "replica-a", CAPACITY)).running
    assert running.attempts == 0
    assert (await store.commit(fence, [make_row(record, 1, (2,))])).statuses == ("appended",)
    (entry,) = (await store.requeue(fence, ["r1"])).window.entries
    assert entry.attempts == 0


async def test_a_drained_worker_leaves_without_attempts(store: RequestStore) -> None:
    fence = await attach(store, "worker-1")
    await run_all(store, fence, "r1")

    assert await store.detach_worker(fence) == ("r1",)
    assert await store.detach_worker(fence) == ()

    (entry,) = (await store.poll(await attach(store, "worker-2"))).window.entries
    assert (entry.request_id, entry.attempts) == ("r1", 0)
    with pytest.raises(StaleFence):
        await store.poll(fence)


async def test_a_poll_does_not_raise_the_beat_but_an_empty_commit_does(store: RequestStore) -> None:
    fence = await attach(store, epoch=3)

    before = await store.read_worker_beat("worker-1")
    await store.poll(fence)
    assert await store.read_worker_beat("worker-1") == before
    await store.commit(fence, [])
    assert before is not None
    assert await store.read_worker_beat("worker-1") == (3, before[1] + 1)
