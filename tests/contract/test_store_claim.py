"""The queue, its window and claims, on the model and on a real Valkey."""

from fakes_store import (
    OpenStore,
    attach,
    make_new_request,
    numbered,
    run_all,
    status_of,
    submit_all,
)

from scheduler_service.store.interface import RequestStore
from shared.types import FinishReason


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
