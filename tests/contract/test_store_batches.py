"""Static and dynamic batches in the store: begun whole, held back to their end, closed whatever happens."""

from contextlib import aclosing
from dataclasses import replace

import pytest
from fakes_store import (
    READER,
    StoreHarness,
    attach,
    make_new_request,
    make_row,
    next_of,
    status_of,
    submit_all,
)

from scheduler_service.store.interface import RequestStore
from scheduler_service.store.values import BatchStart, Fence, RowStatus, RunningRecord, Watch
from shared.errors import QueueFull
from shared.types import FinishReason

HELD = BatchStart(batch_id="b1", settings='{"name": "static"}', is_held=True)
NAMES = ("r1", "r2", "r3")


@pytest.fixture
def store(harness: StoreHarness) -> RequestStore:
    return harness.store


async def begin(
    store: RequestStore, batch: BatchStart = HELD
) -> tuple[Fence, dict[str, RunningRecord]]:
    fence = await attach(store)
    await submit_all(store, *NAMES, watch=READER)
    outcome = await store.claim(fence, NAMES, at_least=3, batch=batch)
    return fence, {record.request_id: record for record in outcome.claimed}


async def finish(store: RequestStore, fence: Fence, record: RunningRecord) -> None:
    row = make_row(record, 0, (5, 6), FinishReason.LENGTH)
    assert (await store.commit(fence, [row])).statuses == (RowStatus.APPENDED,)


async def read(store: RequestStore, name: str) -> tuple[str, tuple[int, ...]]:
    (slice_,) = await store.read_logs([(name, 0)])
    assert slice_ is not None
    return slice_.status, slice_.token_ids


async def test_a_batch_is_claimed_whole_or_not_at_all(store: RequestStore) -> None:
    fence = await attach(store)
    await submit_all(store, *NAMES)
    await store.cancel(["r2"])

    assert (await store.claim(fence, NAMES, at_least=3, batch=HELD)).claimed == ()
    assert (await store.attach_driver(replace(fence, epoch=2), "a", 1)).batches == ()


async def test_answers_are_held_back_until_the_last_member_has_ended(store: RequestStore) -> None:
    fence, records = await begin(store)
    for name in ("r1", "r2"):
        await finish(store, fence, records[name])

    assert await read(store, "r1") == ("running", ())
    await finish(store, fence, records["r3"])

    for name in NAMES:
        assert await read(store, name) == ("finished", (5, 6))


async def test_what_could_be_read_before_stays_readable(store: RequestStore) -> None:
    fence, records = await begin(store, replace(HELD, batch_id="b0", is_held=False))
    await store.commit(fence, [make_row(records["r1"], 0, (5, 6))])
    await store.requeue(fence, ["r1"])
    again = (await store.claim(fence, ["r1"], batch=HELD)).claimed
    await store.commit(fence, [make_row(again[0], 2, (7,))])

    assert await read(store, "r1") == ("running", (5, 6))
    (slice_,) = await store.read_logs([("r1", 1)])
    assert slice_ is not None
    assert (slice_.num_output_tokens, slice_.token_ids) == (2, (6,))


async def test_a_batch_that_streams_is_not_held_back(store: RequestStore) -> None:
    fence, records = await begin(store, replace(HELD, is_held=False))
    await store.commit(fence, [make_row(records["r1"], 0, (5,))])
    await finish(store, fence, records["r2"])

    assert await read(store, "r1") == ("running", (5,))
    assert await read(store, "r2") == ("finished", (5, 6))


async def test_the_end_of_a_batch_rings_for_all_its_readers(harness: StoreHarness) -> None:
    store = harness.store
    fence, records = await begin(store)
    await finish(store, fence, records["r1"])
    assert await store.watch("r1", Watch(replica_id="replica-b", nonce="late", grace_ms=0))
    here, there = store.doorbells("replica-a"), store.doorbells("replica-b")
    async with aclosing(here), aclosing(there):
        await next_of(here, ())
        await next_of(there, ())

        await finish(store, fence, records["r2"])
        await finish(store, fence, records["r3"])

        rung: set[str] = set()
        while rung < {"r2", "r3"}:
            rung.update(await anext(here))
        await next_of(there, ("r1",))


async def test_a_cancelled_member_leaves_at_once_and_the_others_go_on(store: RequestStore) -> None:
    fence, records = await begin(store)
    row = make_row(records["r1"], 0, (), FinishReason.CANCELLED)
    await store.commit(fence, [row])

    assert (await read(store, "r1"))[0] == "cancelled"
    await finish(store, fence, records["r2"])
    assert (await read(store, "r2"))[0] == "running"
    await finish(store, fence, records["r3"])
    assert (await read(store, "r2"))[0] == "finished"


async def test_a_driver_that_takes_over_learns_of_the_batch(store: RequestStore) -> None:
    fence, records = await begin(store)
    await finish(store, fence, records["r1"])

    attached = await store.attach_driver(replace(fence, epoch=2), "replica-b", 1)

    (batch,) = attached.batches
    assert (batch.batch_id, batch.settings, batch.size) == ("b1", HELD.settings, 3)
    assert [(r.request_id, r.batch_id) for r in attached.running] == [("r2", "b1"), ("r3", "b1")]


async def test_a_dead_worker_closes_the_batch(store: RequestStore) -> None:
    fence, records = await begin(store)
    await finish(store, fence, records["r1"])
    beat = await store.read_worker_beat(fence.incarnation)
    assert beat is not None

    await store.reclaim(fence.incarnation, *beat)

    assert await read(store, "r1") == ("finished", (5, 6))
    assert await status_of(store, "r2") == "waiting"
    other = await attach(store, "worker-2")
    (again,) = (await store.claim(other, ["r2"])).claimed
    assert again.batch_id == ""
    await store.commit(other, [make_row(again, 0, (5,))])
    assert await read(store, "r2") == ("running", (5,))


async def test_a_held_answer_outlives_its_retention_and_has_it_from_the_end(
    harness: StoreHarness,
) -> None:
    store = harness.store
    fence, records = await begin(store)
    await finish(store, fence, records["r1"])
    assert await harness.time_to_live_s("request:r1") in (None, -1)

    for name in ("r2", "r3"):
        await finish(store, fence, records[name])

    assert await harness.time_to_live_s("request:r1") in (None, 600, 599)
    assert not {k for k in await harness.keys_for_ever() if "b1" in k}


async def test_rejected_requests_expire_and_running_ones_do_not(store: RequestStore) -> None:
    fence = await attach(store)
    await submit_all(store, "late", "runs")
    await store.claim(fence, ["runs"])

    reply = await store.reject(fence, ["late", "runs", "unknown"])

    assert (reply.window.num_waiting, reply.window.num_running) == (0, 1)
    (slice_,) = await store.read_logs([("late", 0)])
    assert slice_ is not None
    assert (slice_.status, slice_.finish) == ("expired", FinishReason.EXPIRED)
    assert "queue timeout" in slice_.error


async def test_a_priority_level_has_its_own_cap(store: RequestStore) -> None:
    for number in range(2):
        request = make_new_request(f"r{number}", priority=3, max_level_requests=2)
        await store.submit(request)
    await store.submit(make_new_request("other", priority=2, max_level_requests=2))

    with pytest.raises(QueueFull):
        await store.submit(make_new_request("r2", priority=3, max_level_requests=2))


async def test_the_queue_timeout_is_in_the_window(store: RequestStore) -> None:
    fence = await attach(store)
    await store.submit(make_new_request(queue_timeout_ms=1234))

    (entry,) = (await store.poll(fence)).window.entries
    assert entry.queue_timeout_ms == 1234


async def test_every_replica_learns_the_strategy(store: RequestStore) -> None:
    assert (await store.beat("a")).strategy == ""
    await store.set_strategy("{}")
    assert (await store.beat("b")).strategy == "{}"


async def test_tokens_made_after_a_cancel_or_for_nobody_are_counted(store: RequestStore) -> None:
    fence = await attach(store)
    await submit_all(store, "cancelled", "left", "read", watch=READER)
    claimed = (await store.claim(fence, ["cancelled", "left", "read"])).claimed
    await store.commit(fence, [make_row(record, 0, (1,)) for record in claimed])
    await store.cancel(["cancelled"])
    await store.unwatch("left", READER.nonce)
    await store.unwatch("read", READER.nonce)
    await store.watch("read", replace(READER, nonce="again"))
    await store.commit(fence, [make_row(record, 1, (2, 3)) for record in claimed])
    ends = [make_row(record, 3, (), FinishReason.CANCELLED) for record in claimed]
    await store.commit(fence, ends)

    assert (await store.beat("a")).num_unread_tokens == 4
