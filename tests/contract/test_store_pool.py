"""The pool, its replicas, doorbells and keys, on the model and on a real Valkey."""

from contextlib import aclosing

import pytest
from fakes_store import (
    READER,
    attach,
    make_row,
    next_of,
    run_all,
    submit_all,
)

from scheduler_service.store.interface import RequestStore
from scheduler_service.store.values import Watch
from shared.errors import StoreRefused
from shared.types import FinishReason


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
