"""One suite for the store, run on the model and on a real Valkey."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import replace

import pytest
from fakes_store import (
    CAPACITY,
    READER,
    StoreHarness,
    attach,
    make_new_request,
    make_row,
    next_of,
    numbered,
    run_all,
    status_of,
    submit_all,
)

from scheduler_service.store.interface import RequestStore
from scheduler_service.store.values import Fence, RowStatus, Watch
from shared.errors import QueueFull, RequestConflict, StaleFence, StoreRefused, StoreRolledBack
from shared.types import Assignment, FinishReason

OpenStore = Callable[..., AbstractAsyncContextManager[StoreHarness]]
POOL_KEYS = {
    "meta",
    "queue",
    "sizes",
    "waiting",
    "workers",
    "replicas",
    "tenants",
    "deadlines",
    "watches",
    "watchers",
}


@pytest.fixture
def store(harness: StoreHarness) -> RequestStore:
    return harness.store


async def window_ids(store: RequestStore, fence: Fence) -> list[str]:
    return [entry.request_id for entry in (await store.poll(fence)).window.entries]


# Submit.


async def test_submit_is_idempotent_and_the_first_record_wins(store: RequestStore) -> None:
    first = await store.submit(make_new_request(payload=b"seed 1"))
    again = await store.submit(make_new_request(payload=b"seed 2"))

    assert (first.created, first.payload) == (True, b"seed 1")
    assert (again.created, again.payload) == (False, b"seed 1")
    assert await store.read_payload("r1") == b"seed 1"
    assert (await store.beat("a")).num_waiting == 1


async def test_other_fields_under_the_same_id_are_a_conflict(store: RequestStore) -> None:
    await submit_all(store, "r1")

    with pytest.raises(RequestConflict):
        await store.submit(make_new_request(payload_hash=b"x" * 32))


async def test_an_ended_request_is_still_the_same_request(store: RequestStore) -> None:
    await submit_all(store, "r1")
    await store.cancel(["r1"])

    assert (await store.submit(make_new_request())).created is False
    assert await status_of(store, "r1") == "cancelled"


async def test_a_full_queue_refuses_by_requests_and_by_tokens(open_store: OpenStore) -> None:
    async with open_store(max_queued_requests=2, max_queued_tokens=25) as opened:
        await opened.store.submit(make_new_request("r1", num_prompt_tokens=15))
        with pytest.raises(QueueFull):
            await opened.store.submit(make_new_request("r2", num_prompt_tokens=11))
        await opened.store.submit(make_new_request("r2", num_prompt_tokens=10))
        with pytest.raises(QueueFull):
            await opened.store.submit(make_new_request("r3", num_prompt_tokens=0))

        assert (await opened.store.submit(make_new_request("r1"))).created is False
        await opened.store.cancel(["r1"])
        assert (await opened.store.submit(make_new_request("r3"))).created is True


async def test_binary_payloads_and_odd_names_come_back_as_they_were(store: RequestStore) -> None:
    fence = await attach(store)
    payload = bytes(range(256)) + b"\r\n"

    (record,) = await run_all(store, fence, "ü {x}\n:", payload=payload, tenant="Tenant: ÿ\n")

    assert (record.request_id, record.payload) == ("ü {x}\n:", payload)
    assert record.tenant == "Tenant: ÿ\n"


# Queue and claim.


async def test_the_window_is_ordered_by_priority_then_arrival(store: RequestStore) -> None:
    fence = await attach(store)
    for number, priority in enumerate([0, 4095, -4095, 0, -1]):
        await store.submit(make_new_request(f"r{number}", priority=priority))

    reply = await store.poll(fence)

    assert [e.request_id for e in reply.window.entries] == ["r2", "r4", "r0", "r3", "r1"]
    assert [e.priority for e in reply.window.entries] == [-4095, -1, 0, 0, 4095]


async def test_the_window_is_capped_and_the_totals_are_exact(open_store: OpenStore) -> None:
    async with open_store(claim_window=3) as opened:
        fence = await attach(opened.store)
        await submit_all(opened.store, *numbered("r", 5), num_prompt_tokens=7)
        await opened.store.claim(fence, ["r0"])

        window = (await opened.store.poll(fence)).window

        assert [e.request_id for e in window.entries] == ["r1", "r2", "r3"]
        assert (window.num_waiting, window.num_running, window.num_waiting_tokens) == (4, 1, 28)


async def test_a_queue_entry_says_what_the_planner_needs(store: RequestStore) -> None:
    fence = await attach(store)
    await store.submit(make_new_request(timeout_ms=60_000, priority=3))

    (entry,) = (await store.poll(fence)).window.entries

    assert (entry.tenant, entry.priority, entry.max_tokens) == ("tenant", 3, 100)
    assert (entry.num_prompt_tokens, entry.num_output_tokens, entry.attempts) == (10, 0, 0)
    assert 0 <= entry.age_ms < 10_000
    assert entry.remaining_ms is not None and entry.remaining_ms + entry.age_ms == 60_000


async def test_a_driver_sees_only_what_its_worker_can_ever_run(open_store: OpenStore) -> None:
    async with open_store(claim_window=3) as opened:
        store = opened.store
        small = await attach(store, "small", capacity=110)
        large = await attach(store, "large", capacity=111)
        await submit_all(store, *numbered("big", 20), num_prompt_tokens=11)
        await submit_all(store, *numbered("r", 4))

        for_small, for_large = (await store.poll(small)).window, (await store.poll(large)).window

        assert [e.request_id for e in for_small.entries] == ["r0", "r1", "r2"]
        assert [e.request_id for e in for_large.entries] == ["big0", "big1", "big2"]
        assert (for_small.num_unfit, for_large.num_unfit) == (20, 0)
        assert for_small.num_waiting == for_large.num_waiting == 24


async def test_work_behind_a_thousand_unfit_requests_is_found(open_store: OpenStore) -> None:
    async with open_store() as opened:
        store = opened.store
        fence = await attach(store, capacity=110)
        await submit_all(store, *numbered("big", 1024), num_prompt_tokens=11)
        await submit_all(store, "r0", "r1", num_prompt_tokens=10)
        await submit_all(store, "small", num_prompt_tokens=1)

        window = (await store.poll(fence)).window

        assert [e.request_id for e in window.entries] == ["small", "r0", "r1"]
        assert window.num_unfit == 1024


async def test_what_no_worker_can_run_for_the_timeout_is_ended(open_store: OpenStore) -> None:
    async with open_store(unfit_timeout_ms=60) as opened:
        store = opened.store
        await attach(store, "small", capacity=110)
        large = await attach(store, "large", capacity=111)
        await submit_all(store, "big", num_prompt_tokens=11)
        await submit_all(store, "r1", num_prompt_tokens=10)
        await store.beat("a")
        await opened.pass_time(61)
        await store.beat("a")
        assert await status_of(store, "big") == "waiting"  # the large worker may come to it

        await store.detach_worker(large)
        await store.beat("a")  # from here on nobody can run it
        assert await status_of(store, "big") == "waiting"
        await opened.pass_time(61)
        await store.beat("a")

        (slice_,) = await store.read_logs([("big", 0)])
        assert slice_ is not None
        assert (slice_.status, slice_.finish) == ("failed", FinishReason.UNFIT)
        assert "11 prompt tokens and 100 new ones: the largest takes 110" in slice_.error
        assert await status_of(store, "r1") == "waiting"


async def test_without_any_worker_nothing_is_unfit(open_store: OpenStore) -> None:
    async with open_store(unfit_timeout_ms=20) as opened:
        store = opened.store
        fence = await attach(store, capacity=1)
        await submit_all(store, "r1")
        await store.beat("a")
        await store.detach_worker(fence)
        for _ in range(3):
            await opened.pass_time(21)
            await store.beat("a")

        assert await status_of(store, "r1") == "waiting"


async def test_claim_takes_only_what_still_waits(store: RequestStore) -> None:
    first, second = await attach(store, "worker-1"), await attach(store, "worker-2")
    await submit_all(store, "r1", "r2", "r3")
    await store.cancel(["r3"])

    mine = await store.claim(first, ["r1"])
    rest = await store.claim(second, ["r1", "r2", "r2", "r3", "unknown"])

    assert [record.request_id for record in mine.claimed] == ["r1"]
    assert [record.request_id for record in rest.claimed] == ["r2"]
    assert rest.reply.window.num_running == 2


async def test_claim_is_all_or_nothing_below_at_least(store: RequestStore) -> None:
    fence = await attach(store)
    await submit_all(store, "r1", "r2")

    refused = await store.claim(fence, ["r1", "r2", "gone"], at_least=3)
    taken = await store.claim(fence, ["r1", "r2", "gone"], at_least=2)

    assert refused.claimed == () and refused.reply.window.num_waiting == 2
    assert len(taken.claimed) == 2


async def test_a_repeated_claim_gives_the_same_assignment(store: RequestStore) -> None:
    """Its first answer may have been lost."""
    fence = await attach(store)
    (first,) = await run_all(store, fence, "r1")

    (again,) = (await store.claim(fence, ["r1"])).claimed

    assert again == first


async def test_each_assignment_has_a_higher_counter_and_another_nonce(store: RequestStore) -> None:
    fence = await attach(store)
    (first,) = await run_all(store, fence, "r1")
    await store.requeue(fence, ["r1"])

    (second,) = (await store.claim(fence, ["r1"])).claimed

    assert second.assignment.counter == first.assignment.counter + 1
    assert second.assignment.nonce != first.assignment.nonce


# Fence.


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


# Commit.


async def test_commit_appends_where_the_log_ends(store: RequestStore) -> None:
    fence = await attach(store)
    one, two = await run_all(store, fence, "r1", "r2")

    first = await store.commit(fence, [make_row(one, 0, (1, 2)), make_row(two, 0, (9,))])
    second = await store.commit(fence, [make_row(one, 2, (3,)), make_row(one, 3, (4, 5))])

    assert (first.statuses, first.lengths) == (("appended", "appended"), (2, 1))
    assert (second.statuses, second.lengths) == (("appended", "appended"), (3, 5))
    slices = await store.read_logs([("r1", 0), ("r1", 3), ("r1", 9), ("r2", 0), ("unknown", 0)])
    assert [s and s.token_ids for s in slices] == [(1, 2, 3, 4, 5), (4, 5), (), (9,), None]
    assert [s and s.num_output_tokens for s in slices] == [5, 5, 5, 1, None]


async def test_a_replay_with_equal_values_is_answered_and_its_tail_appended(
    store: RequestStore,
) -> None:
    fence = await attach(store)
    (record,) = await run_all(store, fence, "r1")
    await store.commit(fence, [make_row(record, 0, (1, 2, 3))])

    outcome = await store.commit(
        fence,
        [
            make_row(record, 0, (1, 2)),
            make_row(record, 1, (2, 3)),
            make_row(record, 2, (3, 4, 5)),
            make_row(record, 5, ()),
        ],
    )

    assert outcome.statuses == ("replayed", "replayed", "appended", "appended")
    assert outcome.lengths == (3, 3, 5, 5)


async def test_a_row_beyond_the_log_is_a_gap_and_finishes_nothing(store: RequestStore) -> None:
    fence = await attach(store)
    (record,) = await run_all(store, fence, "r1")

    row = make_row(record, 2, (3,), FinishReason.LENGTH)
    outcome = await store.commit(fence, [row])

    assert (outcome.statuses, outcome.lengths) == ((RowStatus.GAP,), (0,))
    assert await status_of(store, "r1") == "running"


@pytest.mark.parametrize(("index", "token_ids"), [(0, (1, 7)), (1, (7, 3, 4)), (2, (7,))])
async def test_other_values_than_the_log_end_as_data_loss(
    store: RequestStore, index: int, token_ids: tuple[int, ...]
) -> None:
    fence = await attach(store)
    (record,) = await run_all(store, fence, "r1")
    await store.commit(fence, [make_row(record, 0, (1, 2, 3))])

    outcome = await store.commit(fence, [make_row(record, index, token_ids)])

    (slice_,) = await store.read_logs([("r1", 0)])
    assert outcome.statuses == (RowStatus.DATA_LOSS,)
    assert slice_ is not None and (slice_.status, slice_.token_ids) == ("data_loss", (1, 2, 3))
    assert slice_.finish is None and slice_.error
    assert outcome.reply.window.num_running == 0


async def test_rows_of_another_assignment_or_of_an_ended_request_are_stale(
    store: RequestStore,
) -> None:
    first, second = await attach(store, "worker-1"), await attach(store, "worker-2")
    old, ended = await run_all(store, first, "r1", "r2")
    await store.requeue(first, ["r1"])
    (new,) = (await store.claim(second, ["r1"])).claimed
    await store.commit(first, [make_row(ended, 0, (5,), FinishReason.LENGTH)])
    forged = Assignment(new.assignment.counter, new.assignment.nonce ^ 1)

    outcome = await store.commit(first, [make_row(old, 0, (1,)), make_row(ended, 1, (6,))])
    zombie = await store.commit(first, [make_row(new, 0, (1,))])
    rolled_back = await store.commit(second, [replace(make_row(new, 0, (2,)), assignment=forged)])

    assert outcome.statuses == ("stale", "stale")
    assert outcome.lengths == (0, 1)
    assert zombie.statuses == rolled_back.statuses == ("stale",)
    assert (await store.commit(second, [make_row(new, 0, (1,))])).statuses == ("appended",)


async def test_rows_after_the_finishing_one_are_stale(store: RequestStore) -> None:
    fence = await attach(store)
    (record,) = await run_all(store, fence, "r1")

    outcome = await store.commit(
        fence, [make_row(record, 0, (1,), FinishReason.STOP_TOKEN), make_row(record, 1, (2,))]
    )

    assert outcome.statuses == ("appended", "stale")
    assert outcome.lengths == (1, 1)


@pytest.mark.parametrize(
    ("finish", "status"),
    [
        (FinishReason.STOP_TOKEN, "finished"),
        (FinishReason.LENGTH, "finished"),
        (FinishReason.STOP_STRING, "finished"),
        (FinishReason.CANCELLED, "cancelled"),
        (FinishReason.EXPIRED, "expired"),
        (FinishReason.ERROR, "failed"),
    ],
)
async def test_finish_comes_with_the_last_token(
    harness: StoreHarness, finish: FinishReason, status: str
) -> None:
    store = harness.store
    fence = await attach(store)
    (record,) = await run_all(store, fence, "r1", watch=READER, timeout_ms=60_000)

    outcome = await store.commit(
        fence,
        [
            make_row(
                record,
                0,
                (1, 2, 3),
                finish,
                visible_tokens=0,
                visible_chars=11,
                stop_match="stöp\n",
                error="why",
                num_cached_tokens=8,
            )
        ],
    )

    (slice_,) = await store.read_logs([("r1", 1)])
    assert slice_ is not None
    assert (slice_.status, slice_.finish, slice_.token_ids) == (status, finish, (2, 3))
    assert (slice_.visible_tokens, slice_.visible_chars) == (0, 11)
    assert (slice_.stop_match, slice_.error, slice_.num_cached_tokens) == ("stöp\n", "why", 8)
    assert (outcome.reply.window.num_running, outcome.reply.window.num_waiting) == (0, 0)
    assert await harness.time_to_live_s("request:r1") in (None, 599, 600)
    assert await harness.time_to_live_s("tokens:r1") in (None, 599, 600)


async def test_cached_tokens_are_kept_when_a_row_does_not_know_them(store: RequestStore) -> None:
    fence = await attach(store)
    (record,) = await run_all(store, fence, "r1")

    await store.commit(fence, [make_row(record, 0, (1,), num_cached_tokens=0)])
    await store.commit(fence, [make_row(record, 1, (1,), num_cached_tokens=16)])
    await store.commit(fence, [make_row(record, 2, (2,))])

    (slice_,) = await store.read_logs([("r1", 0)])
    assert slice_ is not None and slice_.num_cached_tokens == 16


async def test_an_ended_request_is_forgotten_after_its_retention(open_store: OpenStore) -> None:
    async with open_store(retention_s=1) as opened:
        await submit_all(opened.store, "r1")
        await opened.store.cancel(["r1"])
        if opened.server is not None:
            await opened.server.pexpire(opened.prefix + "request:r1", 1)  # the real clock is slow
            await opened.pass_time(5)
        else:
            await opened.pass_time(1000)

        assert await opened.store.read_logs([("r1", 0)]) == (None,)
        assert await opened.store.read_payload("r1") is None
        assert await opened.store.watch("r1", READER) is False
        assert (await opened.store.submit(make_new_request())).created is True


async def test_nothing_is_kept_for_ever_for_ended_requests(harness: StoreHarness) -> None:
    store = harness.store
    fence = await attach(store)
    records = await run_all(store, fence, *numbered("r", 6), watch=READER, timeout_ms=60_000)
    await submit_all(store, "w1", "w2", watch=READER, timeout_ms=60_000)
    await store.cancel(["w1", "r1", "r2"])
    await store.requeue(fence, ["r1", "r5"])
    await store.commit(
        fence,
        [make_row(records[0], 0, (1,), FinishReason.LENGTH)]
        + [make_row(records[i], 0, (1,)) for i in (2, 3, 4)]
        + [make_row(records[3], 0, (9,))]
        + [make_row(records[2], 1, (), FinishReason.CANCELLED)]
        + [make_row(records[4], 1, (2,), FinishReason.ERROR, error="x")],
    )
    await store.cancel(["r5", "w2"])
    await store.leave("nobody")
    totals = await store.beat("replica-a")
    await store.detach_worker(fence)
    await store.leave("replica-a")

    slices = await store.read_logs([(i, 0) for i in (*numbered("r", 6), "w1", "w2")])
    assert [slice_.status if slice_ else None for slice_ in slices] == [
        "finished",
        "cancelled",
        "cancelled",
        "data_loss",
        "failed",
        "cancelled",
        "cancelled",
        "cancelled",
    ]
    assert (totals.num_waiting, totals.num_running, totals.num_waiting_tokens) == (0, 0, 0)
    assert await harness.keys_for_ever() <= {"meta"}


# Cancel, deadline, watch.


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

        await store.poll(fence)
        await store.beat("a")
        await store.poll(fence)
        refreshed = [await status_of(store, name) for name in ("refreshed", "forgotten")]
        for _ in range(2):
            await store.refresh_watches("replica-a", [("refreshed", "n1")])
            await opened.pass_time(26)
            await store.beat("a")
        await store.poll(fence)

        assert refreshed == ["waiting", "waiting"]
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


# Requeue, reclaim, detach.


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


# Pool, replicas, doorbells.


async def test_a_pool_is_tied_to_one_model(store: RequestStore) -> None:
    await store.attach_pool("weights-1")
    await store.attach_pool("weights-1")

    with pytest.raises(StoreRefused):
        await store.attach_pool("weights-2")


async def test_replicas_beat_and_leave(store: RequestStore) -> None:
    await store.beat("a")
    await store.beat("b")
    assert (await store.beat("a")).replica_beats == {"a": 2, "b": 1}

    await store.leave("b")

    assert (await store.beat("a")).replica_beats == {"a": 3}


async def test_the_marker_stays_and_the_write_counter_rises_with_writes(
    store: RequestStore,
) -> None:
    fence = await attach(store)
    first = await store.poll(fence)
    idle = await store.poll(fence)
    await submit_all(store, "r1")
    after = await store.poll(fence)

    assert first.marker and first.marker == idle.marker == after.marker
    assert first.write_counter == idle.write_counter < after.write_counter


async def test_doorbells_ring_for_progress_here_and_for_new_work(store: RequestStore) -> None:
    fence = await attach(store)
    async with aclosing(store.doorbells("replica-a")) as bells:  # type: ignore[type-var]
        await next_of(bells, ())
        one, two, three = await run_all(store, fence, "r1", "r2", "r3", watch=READER)
        await next_of(bells, ())
        await store.watch("r3", Watch(replica_id="replica-b", nonce="n", grace_ms=0))

        await store.commit(
            fence,
            [
                make_row(one, 0, (1,)),
                make_row(one, 1, (2,), FinishReason.LENGTH),
                make_row(two, 0, (1,)),
                make_row(three, 0, (1,)),
            ],
        )
        await next_of(bells, ("r1", "r2"))
        await store.cancel(["r2"])
        await next_of(bells, ())
        await store.commit(fence, [make_row(two, 1, (), FinishReason.CANCELLED)])
        await next_of(bells, ("r2",))
