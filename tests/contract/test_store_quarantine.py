"""Requests whose workers die: counted, isolated, and in the end quarantined."""

import pytest
from fakes_store import StoreHarness, attach, make_row, status_of, submit_all

from scheduler_service.store.interface import RequestStore
from shared.types import FinishReason


@pytest.fixture
def store(harness: StoreHarness) -> RequestStore:
    return harness.store


async def crash(store: RequestStore, number: int, *request_ids: str, token: bool = False) -> None:
    """A worker claims them, makes a token of the first if asked, and dies."""
    fence = await attach(store, f"worker-{number}")
    claimed = (await store.claim(fence, request_ids)).claimed
    if token:
        (slice_,) = await store.read_logs([(request_ids[0], 0)])
        assert slice_ is not None
        await store.commit(fence, [make_row(claimed[0], slice_.num_output_tokens, (1,))])
    beat = await store.read_worker_beat(fence.incarnation)
    assert beat is not None
    await store.reclaim(fence.incarnation, *beat)


async def attempts_of(store: RequestStore, request_id: str) -> int:
    fence = await attach(store, "looks")
    entries = (await store.poll(fence)).window.entries
    await store.detach_worker(fence)
    return next(e.attempts for e in entries if e.request_id == request_id)


async def test_five_crashes_without_a_token_quarantine(store: RequestStore) -> None:
    await submit_all(store, "poison", "mate")
    for number in range(2):
        await crash(store, number, "poison", "mate")
    for number in range(2, 4):
        await crash(store, number, "poison")
    assert await attempts_of(store, "poison") == 4

    await crash(store, 5, "poison")

    (slice_,) = await store.read_logs([("poison", 0)])
    assert slice_ is not None
    assert (slice_.status, slice_.finish) == ("quarantined", FinishReason.QUARANTINED)
    assert "died 5 times" in slice_.error
    assert await status_of(store, "mate") == "waiting"
    (found,) = await store.list_quarantined()
    assert (found.request_id, found.tenant, found.num_prompt_tokens) == ("poison", "tenant", 10)


async def test_a_token_shows_that_it_does_not_kill(store: RequestStore) -> None:
    await submit_all(store, "r1")
    for number in range(4):
        await crash(store, number, "r1")
    await crash(store, 4, "r1", token=True)

    assert await status_of(store, "r1") == "waiting"


async def test_one_that_was_to_be_cancelled_is(store: RequestStore) -> None:
    await submit_all(store, "r1")
    for number in range(4):
        await crash(store, number, "r1")
    fence = await attach(store, "last")
    await store.claim(fence, ["r1"])
    await store.cancel(["r1"])
    beat = await store.read_worker_beat("last")
    assert beat is not None
    await store.reclaim("last", *beat)

    assert await status_of(store, "r1") == "cancelled"


async def test_a_released_id_may_be_submitted_anew(harness: StoreHarness) -> None:
    store = harness.store
    await submit_all(store, "poison", "other")
    for number in range(5):
        await crash(store, number, "poison")
    assert await harness.time_to_live_s("request:poison") in (None, 86_400, 86_399)

    assert await store.release_quarantined(["poison", "other", "unknown"]) == 1

    assert await store.list_quarantined() == ()
    assert await status_of(store, "poison") is None
    await submit_all(store, "poison")
    assert await status_of(store, "poison") == "waiting"
