"""Cancels, deadlines and watches, on the model and on a real Valkey."""

from fakes_store import (
    READER,
    OpenStore,
    StoreHarness,
    attach,
    make_new_request,
    make_row,
    numbered,
    run_all,
    status_of,
    submit_all,
    window_ids,
)

from scheduler_service.store.interface import RequestStore
from scheduler_service.store.values import Watch
from shared.types import FinishReason


async def test_cancel_ends_what_waits_and_flags_what_runs(store: RequestStore) -> None:
    fence, other = await attach(store, "worker-1"), await attach(store, "worker-2")
    (record,) = await run_all(store, fence, "r1")
    await submit_all(store, "r2")

    await store.cancel(["r1", "r2", "unknown"])

    assert await status_of(store, "r2") == "cancelled"
    assert await status_of(store, "r1") == "running"
    for _ in range(2):  # said until the driver has ended it
        reply = await store.poll(fence)
        assert (reply.cancelled_ids, reply.cancel_reasons) == (("r1",), (FinishReason.CANCELLED,))
    assert (await store.poll(other)).cancelled_ids == ()
    outcome = await store.commit(fence, [make_row(record, 0, (), FinishReason.CANCELLED)])
    assert outcome.reply.cancelled_ids == ()
    await store.cancel(["r1"])
    assert await status_of(store, "r1") == "cancelled"


async def test_a_cancelled_request_ends_instead_of_returning_to_the_queue(
    store: RequestStore,
) -> None:
    fence = await attach(store)
    await run_all(store, fence, "r1", "r2")
    await store.cancel(["r1", "r2"])

    reply = await store.requeue(fence, ["r1"])
    assert await store.detach_worker(fence) == ()

    assert reply.window.num_waiting == 0
    assert [await status_of(store, i) for i in ("r1", "r2")] == ["cancelled", "cancelled"]


async def test_a_deadline_ends_what_waits_and_flags_what_runs(harness: StoreHarness) -> None:
    store = harness.store
    fence = await attach(store)
    await run_all(store, fence, "r1", timeout_ms=1_000_000)
    await submit_all(store, "r2", "r3", timeout_ms=1)
    await harness.pass_time(2)

    outcome = await store.claim(fence, ["r2", "r3"])

    assert outcome.claimed == ()
    assert [await status_of(store, i) for i in ("r2", "r3")] == ["expired", "expired"]
    assert outcome.reply.cancelled_ids == ()
    assert outcome.reply.window.num_waiting_tokens == 0


async def test_a_running_request_past_its_deadline_is_flagged_as_expired(
    harness: StoreHarness,
) -> None:
    store = harness.store
    fence = await attach(store)
    (record,) = await run_all(store, fence, "r1", timeout_ms=200)
    await harness.pass_time(201)

    outcome = await store.commit(fence, [make_row(record, 0, (1,))])

    assert outcome.statuses == ("appended",)
    assert outcome.reply.cancelled_ids == ("r1",)
    assert outcome.reply.cancel_reasons == (FinishReason.EXPIRED,)
    await store.cancel(["r1"])  # the first reason holds
    assert (await store.poll(fence)).cancel_reasons == (FinishReason.EXPIRED,)


async def test_lapsed_requests_end_a_bounded_number_a_call(harness: StoreHarness) -> None:
    store = harness.store
    fence = await attach(store)
    await submit_all(store, *numbered("r", 40), timeout_ms=1)
    await harness.pass_time(2)

    left = [(await store.poll(fence)).window.num_waiting for _ in range(2)]

    assert left[1] == 0
    assert (await store.claim(fence, numbered("r", 40))).claimed == ()


async def test_without_any_driver_a_beat_ends_what_lapsed(harness: StoreHarness) -> None:
    await submit_all(harness.store, "r1", timeout_ms=1)
    await harness.pass_time(2)

    assert (await harness.store.beat("replica-a")).num_waiting == 0
    assert await status_of(harness.store, "r1") == "expired"


async def test_an_unwatched_request_is_cancelled_after_its_grace(open_store: OpenStore) -> None:
    async with open_store(watch_lease_ms=1_000_000) as opened:
        store = opened.store
        fence = await attach(store)
        short = Watch(replica_id="replica-a", nonce="n1", grace_ms=1)
        await run_all(store, fence, "running", watch=short)
        await submit_all(store, "waiting", "watched", watch=short)
        await opened.pass_time(5)
        assert (await store.poll(fence)).cancelled_ids == ()  # their readers are there

        for request_id in ("running", "waiting"):
            await store.unwatch(request_id, "n1")
        await opened.pass_time(5)
        reply = await store.poll(fence)

        assert reply.cancelled_ids == ("running",)
        assert reply.cancel_reasons == (FinishReason.CANCELLED,)
        assert await status_of(store, "waiting") == "cancelled"
        assert await status_of(store, "watched") == "waiting"


async def test_a_watch_that_is_not_refreshed_lapses_after_lease_and_grace(
    open_store: OpenStore,
) -> None:
    async with open_store(watch_lease_ms=20) as opened:
        store = opened.store
        fence = await attach(store)
        watch = Watch(replica_id="replica-a", nonce="n1", grace_ms=20)
        await submit_all(store, "forgotten", watch=watch)
        long = Watch(replica_id="replica-a", nonce="n1", grace_ms=600_000)
        await submit_all(store, "patient", watch=long)
        await opened.pass_time(41)

        await store.poll(fence)

        assert await status_of(store, "forgotten") == "cancelled"
        assert await status_of(store, "patient") == "waiting"


async def test_after_an_outage_watches_have_a_lease_to_be_refreshed(open_store: OpenStore) -> None:
    async with open_store(watch_lease_ms=50, outage_ms=100) as opened:
        store = opened.store
        fence = await attach(store)
        watch = Watch(replica_id="replica-a", nonce="n1", grace_ms=0)
        await submit_all(store, "refreshed", "forgotten", watch=watch)
        await store.beat("a")
        await opened.pass_time(101)  # no replica reached the store

        began_ms = await opened.now_ms()
        await store.poll(fence)
        await store.beat("a")
        await store.poll(fence)
        statuses = [await status_of(store, name) for name in ("refreshed", "forgotten")]
        was_in_time = await opened.now_ms() - began_ms < 50
        for _ in range(100):  # a machine that stands still is an outage too
            await store.refresh_watches("replica-a", [("refreshed", "n1")])
            await opened.pass_time(26)
            await store.beat("a")
            await store.poll(fence)
            if await status_of(store, "forgotten") == "cancelled":
                break

        assert statuses == ["waiting", "waiting"] or not was_in_time
        assert await status_of(store, "forgotten") == "cancelled"
        if opened.clock is not None:  # the real one may have stood for longer
            assert await status_of(store, "refreshed") == "waiting"


async def test_a_refresh_keeps_only_the_present_watch(open_store: OpenStore) -> None:
    async with open_store(watch_lease_ms=20) as opened:
        store = opened.store
        fence = await attach(store)
        watch = Watch(replica_id="replica-a", nonce="n1", grace_ms=0)
        await submit_all(store, "kept", "lost", "left", watch=watch)
        await store.unwatch("left", "n1")

        for _ in range(3):
            await opened.pass_time(12)
            await store.refresh_watches(
                "replica-a", [("kept", "n1"), ("lost", "n0"), ("left", "n1"), ("unknown", "n1")]
            )
        await store.poll(fence)

        if opened.clock is not None:  # the real one may have stood between the refreshes
            assert await status_of(store, "kept") == "waiting"
        assert await status_of(store, "lost") == "cancelled"
        assert await status_of(store, "left") == "cancelled"


async def test_a_broken_stream_starts_the_grace_of_its_own_watch_only(
    harness: StoreHarness,
) -> None:
    store = harness.store
    fence = await attach(store)
    await submit_all(store, "r1", watch=Watch(replica_id="a", nonce="n1", grace_ms=1))
    assert await store.watch("r1", Watch(replica_id="b", nonce="n2", grace_ms=1))

    await store.unwatch("r1", "n1")
    await harness.pass_time(3)
    await store.poll(fence)
    assert await status_of(store, "r1") == "waiting"

    await store.unwatch("r1", "n2")
    await harness.pass_time(3)
    await store.poll(fence)
    assert await status_of(store, "r1") == "cancelled"


async def test_a_second_reader_that_leaves_starts_no_grace_while_the_first_is_there(
    harness: StoreHarness,
) -> None:
    store = harness.store
    fence = await attach(store)
    await submit_all(store, "r1", watch=Watch(replica_id="a", nonce="n1", grace_ms=1))
    assert await store.watch("r1", Watch(replica_id="b", nonce="n2", grace_ms=1))

    await store.unwatch("r1", "n2")
    await harness.pass_time(3)
    await store.poll(fence)
    assert await status_of(store, "r1") == "waiting"
    await store.refresh_watches("a", [("r1", "n1")])

    await store.unwatch("r1", "n1")
    await harness.pass_time(3)
    await store.poll(fence)
    assert await status_of(store, "r1") == "cancelled"


async def test_exempt_requests_and_negative_graces_never_lapse(harness: StoreHarness) -> None:
    store = harness.store
    fence = await attach(store)
    await submit_all(store, "never", watch=Watch(replica_id="a", nonce="n", grace_ms=-1))
    await submit_all(store, "exempt")
    await store.watch("exempt", Watch(replica_id="a", nonce="n", grace_ms=0))

    for request_id in ("never", "exempt"):
        await store.unwatch(request_id, "n")
    await harness.pass_time(3)

    assert await window_ids(store, fence) == ["never", "exempt"]


async def test_watching_an_ended_request_works_and_an_unknown_one_does_not(
    store: RequestStore,
) -> None:
    await submit_all(store, "r1")
    await store.cancel(["r1"])

    assert await store.watch("r1", READER) is True
    assert await store.watch("unknown", READER) is False


async def test_a_submit_repeated_by_another_replica_takes_the_watch(harness: StoreHarness) -> None:
    store = harness.store
    fence = await attach(store)
    await store.submit(make_new_request(watch=Watch(replica_id="a", nonce="n1", grace_ms=0)))
    await store.submit(make_new_request(watch=Watch(replica_id="b", nonce="n2", grace_ms=0)))

    await store.unwatch("r1", "n1")
    await harness.pass_time(2)

    assert await window_ids(store, fence) == ["r1"]
