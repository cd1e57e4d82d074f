"""Many streams over two schedulers and two workers, with cancels; afterwards nothing is left behind."""

import asyncio
import random

import grpc
import pytest
import redis.asyncio

from shared.pb import operations_pb2 as ops
from shared.pb import operations_pb2_grpc
from tokentide import Client, TokentideError

pytestmark = [pytest.mark.stack, pytest.mark.slow]

NUM_STREAMS = 100


async def loads_of(endpoint: str) -> ops.Loads:
    async with grpc.aio.insecure_channel(endpoint) as channel:
        return await operations_pb2_grpc.OperationsStub(channel).GetLoads(ops.GetLoadsRequest())


async def wait_until_idle(endpoints: list[str]) -> list[ops.Loads]:
    """Watches the loads until nothing waits, runs, streams or holds a block."""
    async with asyncio.timeout(30):
        while True:
            loads = [await loads_of(endpoint) for endpoint in endpoints]
            if all(is_idle(load) for load in loads):
                return loads
            await asyncio.sleep(0.05)


def is_idle(load: ops.Loads) -> bool:
    held = sum(worker.stats.blocks.held for worker in load.workers)
    return not (load.num_waiting or load.num_running or load.num_streams or held)


async def one_stream(client: Client, number: int) -> str:
    rng = random.Random(number)
    fate = rng.choice(("read", "read", "leave", "cancel", "drop"))
    options = {
        "request_id": f"stream-{number}",
        "max_tokens": rng.randint(5, 80),
        "ignore_eos": True,
        "seed": number,
        "stop": rng.choice(((), ("zz",), ("a", "qq"))),
    }
    num_chunks = 0
    leave_after = rng.randint(1, 8)
    try:
        chunks = client.generate("hello " * rng.randint(1, 40), **options)
        async for _ in chunks:
            num_chunks += 1
            if num_chunks == leave_after and fate == "leave":
                await chunks.aclose()  # the client library cancels
                break
            if num_chunks == leave_after and fate == "cancel":
                await client.cancel(f"stream-{number}")
    except TokentideError as error:
        assert error.code == "CANCELLED", error
        return "cancelled"
    return fate


async def drop_streams(endpoint: str, numbers: range) -> None:
    """Clients that vanish: the connection goes, nobody cancels."""
    from shared.pb import generation_pb2 as pb
    from shared.pb import generation_pb2_grpc

    async with grpc.aio.insecure_channel(endpoint) as channel:
        stub = generation_pb2_grpc.GenerationStub(channel)
        calls = []
        for number in numbers:
            request = pb.GenerateRequest(
                text="hello",
                request_id=f"dropped-{number}",
                stopping=pb.Stopping(max_tokens=1900, ignore_eos=True),
            )
            call = stub.Generate(request)
            await call.read()
            calls.append(call)
        for call in calls:
            call.cancel()


async def test_a_hundred_streams_with_random_cancels_leave_nothing_behind(tiny_stack):
    operations = tiny_stack.operations_endpoints
    async with Client(tiny_stack.endpoints) as client:
        await one_stream(client, 10_000)  # channels are open, pools are warm
        before = await wait_until_idle(operations)

        await asyncio.gather(
            *(one_stream(client, number) for number in range(NUM_STREAMS)),
            drop_streams(tiny_stack.endpoints[0], range(10)),
        )
        after = await wait_until_idle(operations)

    for load in after:
        for worker in load.workers:
            blocks = worker.stats.blocks
            assert blocks.free + blocks.cached == blocks.total
    for old, new in zip(before, after, strict=True):
        assert new.num_tasks <= old.num_tasks + 8, "tasks have grown"
    assert await keys_without_ttl(tiny_stack.redis_url) == []


async def keys_without_ttl(url: str) -> list[str]:
    client = redis.asyncio.from_url(url)
    try:
        keys = [key async for key in client.scan_iter("*")]
        named = [k for k in keys if b"request:" in k or b"tokens:" in k or b"columns:" in k]
        return [k.decode() for k in named if await client.ttl(k) < 0]
    finally:
        await client.aclose()


async def test_both_schedulers_and_both_workers_take_part(tiny_stack):
    async with Client(tiny_stack.endpoints) as client:
        await asyncio.gather(*(one_stream(client, 1000 + n) for n in range(40)))
    loads = [await loads_of(endpoint) for endpoint in tiny_stack.operations_endpoints]

    assert all(load.num_replicas == 2 for load in loads)
    assert all(len(load.workers) == 2 for load in loads)
    driven = [w.address for load in loads for w in load.workers if w.driven_here]
    assert sorted(driven) == sorted(w.address for w in loads[0].workers)
    assert all(w.stats.num_steps > 0 for w in loads[0].workers)


async def test_seeded_output_is_the_same_whoever_serves_it(tiny_stack):
    async def ids_of(endpoint: str, name: str) -> list[int]:
        async with Client(endpoint) as client:
            chunks = client.generate("hello", seed=5, max_tokens=50, request_id=name)
            return [i async for chunk in chunks for i in chunk.token_ids]

    outputs = await asyncio.gather(
        *(ids_of(tiny_stack.endpoints[n % 2], f"same-{n}") for n in range(8))
    )

    assert all(ids == outputs[0] for ids in outputs)


async def test_the_sync_client_does_the_same(tiny_stack):
    from tokentide import SyncClient

    def use() -> tuple[str, str]:
        with SyncClient(tiny_stack.endpoints) as client:
            text = "".join(c.text for c in client.generate("hello", seed=1, max_tokens=8))
            request_id = client.submit("hello", seed=1, max_tokens=8)
            followed = "".join(c.text for c in client.follow(request_id))
            assert client.get(request_id).status == "finished"
            assert client.models()[0].name == "tiny"
            client.cancel(request_id)
            return text, followed

    text, followed = await asyncio.to_thread(use)

    assert text == followed
