"""kill -9 of real processes under load: every stream goes on, with the tokens of an undisturbed run."""

import asyncio
import signal

import pytest
import redis.asyncio
from running_stack import running_stack

from tokentide import Client
from tokentide.local_stack import StackSpec

pytestmark = [pytest.mark.stack, pytest.mark.slow]

NUM_STREAMS = 6
NUM_TOKENS = 200


@pytest.fixture
def fresh_stack(tiny_model_folder):
    spec = StackSpec(
        model_dir=tiny_model_folder,
        num_workers=2,
        num_schedulers=2,
        worker_args=("--num-blocks", "512", "--threads", "1", "--model-name", "tiny"),
    )
    with running_stack(spec) as stack:
        yield stack


async def read(client: Client, number: int, prefix: str, started: asyncio.Event) -> list[int]:
    ids: list[int] = []
    chunks = client.generate(
        "hello " * (number + 1),
        request_id=f"{prefix}-{number}",
        seed=number,
        max_tokens=NUM_TOKENS,
        ignore_eos=True,
    )
    async for chunk in chunks:
        assert not chunk.token_ids or chunk.start_index == len(ids)
        ids.extend(chunk.token_ids)
        if len(ids) > 20:
            started.set()
    return ids


async def read_all(client: Client, prefix: str, started: asyncio.Event) -> list[list[int]]:
    return await asyncio.gather(
        *(read(client, number, prefix, started) for number in range(NUM_STREAMS))
    )


@pytest.mark.parametrize("kind", ["scheduler", "worker", "both"])
async def test_streams_survive_a_kill(fresh_stack, kind):
    stack = fresh_stack.stack
    async with Client(stack.endpoints) as client:
        expected = await read_all(client, "calm", asyncio.Event())
        started = asyncio.Event()
        reading = asyncio.create_task(read_all(client, "storm", started))
        await started.wait()

        if kind in ("scheduler", "both"):
            stack.schedulers[0].signal(signal.SIGKILL)
        if kind in ("worker", "both"):
            stack.workers[0].signal(signal.SIGKILL)
        outputs = await reading

    assert [len(ids) for ids in outputs] == [NUM_TOKENS] * NUM_STREAMS
    assert outputs == expected


async def test_streams_survive_a_store_that_is_emptied(fresh_stack):
    """What runs is given back by its drivers; what only waited is submitted again by its client."""
    stack = fresh_stack.stack
    async with (
        Client(stack.endpoints) as client,
        redis.asyncio.Redis.from_url(stack.redis_url) as server,
    ):
        expected = await read_all(client, "calm", asyncio.Event())
        started = asyncio.Event()
        reading = asyncio.create_task(read_all(client, "storm", started))
        await started.wait()

        await server.flushall()
        outputs = await reading
        again = await read_all(client, "after", asyncio.Event())

    assert outputs == expected
    assert again == expected
