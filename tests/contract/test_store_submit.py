"""What a submit promises, on the model and on a real Valkey."""

import pytest
from fakes_store import (
    OpenStore,
    attach,
    make_new_request,
    run_all,
    status_of,
    submit_all,
)

from scheduler_service.store.interface import RequestStore
from shared.errors import QueueFull, RequestConflict


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
