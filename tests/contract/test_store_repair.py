"""After lost writes: what a driver gives back is taken, as far as nobody knows better."""

from dataclasses import replace

import pytest
from fakes_store import READER, StoreHarness, attach, make_row, run_all, status_of, submit_all

from scheduler_service.store.interface import RequestStore
from scheduler_service.store.values import AdoptStatus, Fence, RowStatus, RunningRecord
from shared.errors import StoreRolledBack
from shared.types import Assignment, FinishReason


@pytest.fixture
def store(harness: StoreHarness) -> RequestStore:
    return harness.store


def held(request_id: str = "r1", counter: int = 1, log: tuple[int, ...] = (5, 6)) -> RunningRecord:
    """As a driver remembers it."""
    return RunningRecord(
        request_id=request_id,
        assignment=Assignment(counter, 77),
        num_output_tokens=len(log),
        payload=b"payload",
        log=log,
        tenant="tenant",
        priority=2,
        payload_hash=request_id.encode().ljust(32, b"\0"),
        num_prompt_tokens=10,
        max_tokens=100,
    )


async def adopt(store: RequestStore, fence: Fence, *records: RunningRecord) -> list[str]:
    return list((await store.adopt(fence, records)).statuses)


async def read(store: RequestStore, name: str = "r1") -> tuple[str, tuple[int, ...]]:
    (slice_,) = await store.read_logs([(name, 0)])
    assert slice_ is not None
    return slice_.status, slice_.token_ids


async def test_a_lost_request_is_there_again_and_goes_on(store: RequestStore) -> None:
    fence = await attach(store)

    assert await adopt(store, fence, held()) == [AdoptStatus.ADOPTED]

    assert await read(store) == ("running", (5, 6))
    assert await store.read_payload("r1") == b"payload"
    row = make_row(held(), 2, (7,), FinishReason.LENGTH)
    assert (await store.commit(fence, [row])).statuses == (RowStatus.APPENDED,)
    assert await read(store) == ("finished", (5, 6, 7))
    await submit_all(store, "r1")  # the same fields: the same request


async def test_the_longer_log_wins_and_both_must_agree(store: RequestStore) -> None:
    fence = await attach(store)
    one, two, three = await run_all(store, fence, "r1", "r2", "r3")
    await store.commit(fence, [make_row(r, 0, (5, 6)) for r in (one, two, three)])

    presented = [replace(one, log=(5, 6, 7)), replace(two, log=(5,)), replace(three, log=(5, 9))]

    assert await adopt(store, fence, *presented) == [
        AdoptStatus.ADOPTED,
        AdoptStatus.ADOPTED,
        AdoptStatus.DATA_LOSS,
    ]
    assert await read(store, "r1") == ("running", (5, 6, 7))
    assert await read(store, "r2") == ("running", (5, 6))
    assert await status_of(store, "r3") == "data_loss"


async def test_a_waiting_one_runs_again_where_it_ran(store: RequestStore) -> None:
    fence = await attach(store)
    await submit_all(store, "r1")

    assert await adopt(store, fence, held()) == [AdoptStatus.ADOPTED]

    window = (await store.poll(fence)).window
    assert (window.num_waiting, window.num_running) == (0, 1)


@pytest.mark.parametrize(
    ("counter", "status"),
    [(1, AdoptStatus.STALE), (2, AdoptStatus.ADOPTED)],
)
async def test_of_two_workers_the_newer_assignment_holds(
    store: RequestStore, counter: int, status: str
) -> None:
    first, second = await attach(store, "w1"), await attach(store, "w2")
    (there,) = await run_all(store, second, "r1")

    assert await adopt(store, first, held(counter=counter)) == [status]

    row = make_row(there, 0, (5,))
    expected = RowStatus.APPENDED if status == AdoptStatus.STALE else RowStatus.STALE
    assert (await store.commit(second, [row])).statuses == (expected,)
    assert (await store.poll(first)).window.num_running == 1


async def test_an_ended_one_stays_ended(store: RequestStore) -> None:
    fence = await attach(store)
    (record,) = await run_all(store, fence, "r1")
    await store.commit(fence, [make_row(record, 0, (5,), FinishReason.LENGTH)])

    assert await adopt(store, fence, record) == [AdoptStatus.STALE]
    assert await read(store) == ("finished", (5,))


async def test_nothing_is_taken_before_the_worker_is_attached_again(store: RequestStore) -> None:
    with pytest.raises(StoreRolledBack):
        await store.adopt(Fence("worker-1", 3), [held()])


async def test_a_reader_that_refreshes_keeps_it_and_rings(harness: StoreHarness) -> None:
    store = harness.store
    fence = await attach(store)
    await adopt(store, fence, held())

    await store.refresh_watches("replica-a", [("r1", READER.nonce)])

    (attached,) = (await store.attach_driver(replace(fence, epoch=2), "b", 1)).running
    assert (attached.payload_hash, attached.is_exempt) == (held().payload_hash, False)
    await store.unwatch("r1", READER.nonce)
    assert await status_of(store, "r1") == "running"  # its grace runs
