"""Strategies of a running stack: set live, the same in every replica, seen by clients as they promise."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from shared.pb import operations_pb2 as pb
from shared.pb import operations_pb2_grpc
from shared.strategy import StrategySettings
from shared.wire.strategy import strategy_from_pb, strategy_to_pb
from tokentide import Client

pytestmark = [pytest.mark.stack, pytest.mark.slow]

LENGTHS = (3, 9, 20, 40)


class Operators:
    """Both replicas' operators' doors."""

    def __init__(self, stubs: list[operations_pb2_grpc.OperationsStub]) -> None:
        self.stubs = stubs

    async def set(self, settings: StrategySettings | None) -> None:
        """At the first replica; returns when both say so."""
        strategy = strategy_to_pb(settings) if settings is not None else None
        await self.stubs[0].SetStrategy(pb.SetStrategyRequest(strategy=strategy))
        wanted = settings or StrategySettings()
        async with asyncio.timeout(10):
            while [await self.get(stub) for stub in self.stubs] != [wanted] * len(self.stubs):
                await asyncio.sleep(0.02)

    async def get(self, stub: operations_pb2_grpc.OperationsStub) -> StrategySettings:
        return strategy_from_pb((await stub.GetStrategy(pb.GetStrategyRequest())).strategy)

    async def held_steps(self) -> int:
        loads = [await stub.GetLoads(pb.GetLoadsRequest()) for stub in self.stubs]
        return sum(load.totals.num_held_sequence_steps for load in loads)


@pytest.fixture
async def operators(tiny_stack) -> AsyncIterator[Operators]:
    channels = [grpc.aio.insecure_channel(e) for e in tiny_stack.operations_endpoints]
    operators = Operators([operations_pb2_grpc.OperationsStub(channel) for channel in channels])
    try:
        yield operators
        await operators.set(None)
    finally:
        for channel in channels:
            await channel.close()


async def num_chunks_with_tokens(client: Client, max_tokens: int) -> int:
    chunks = client.generate("hello", max_tokens=max_tokens, ignore_eos=True)
    taken = [chunk async for chunk in chunks]
    assert sum(len(chunk.token_ids) for chunk in taken) == max_tokens
    return sum(bool(chunk.token_ids) for chunk in taken)


async def run_four(endpoints: list[str]) -> list[int]:
    """Chunks that brought tokens, of four requests at once over both replicas."""
    clients = [Client(endpoints[n % len(endpoints)]) for n in range(len(LENGTHS))]
    try:
        tasks = (num_chunks_with_tokens(c, n) for c, n in zip(clients, LENGTHS, strict=True))
        async with asyncio.timeout(60):
            return await asyncio.gather(*tasks)
    finally:
        for client in clients:
            await client.close()


async def test_answers_of_a_static_batch_leave_when_it_ends(tiny_stack, operators) -> None:
    await operators.set(StrategySettings(name="static", batch_size=4))
    held_before = await operators.held_steps()

    assert await run_four(tiny_stack.endpoints) == [1, 1, 1, 1]
    assert await operators.held_steps() > held_before + 40  # 37 + 31 + 20, about


async def test_a_batch_may_stream_all_the_same(tiny_stack, operators) -> None:
    await operators.set(StrategySettings(name="static", batch_size=4, release="stream"))

    assert max(await run_four(tiny_stack.endpoints)) > 3


async def test_a_dynamic_batch_leaves_after_the_queue_delay(tiny_stack, operators) -> None:
    await operators.set(
        StrategySettings(name="dynamic", preferred_batch_sizes=(8,), max_queue_delay_ms=50)
    )

    assert await run_four(tiny_stack.endpoints) == [1, 1, 1, 1]


async def test_switching_while_requests_run_and_wait_loses_nothing(tiny_stack, operators) -> None:
    strategies = [
        StrategySettings(name="static", batch_size=2),
        StrategySettings(),
        StrategySettings(name="dynamic", max_queue_delay_ms=20),
        StrategySettings(chunk_size=-1, admission="guaranteed"),
    ]
    running = [asyncio.create_task(run_four(tiny_stack.endpoints)) for _ in range(6)]
    for settings in strategies * 2:
        await operators.set(settings)
    await operators.set(None)

    assert len(await asyncio.gather(*running)) == 6


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        (pb.Strategy(name="magic"), "name"),
        (pb.Strategy(name="static", admission="guaranteed"), "admission"),
        (pb.Strategy(name="static", batch_size=65), "strategy"),  # claim_window 64
        (pb.Strategy(name="dynamic", preserve_ordering=True), "preserve_ordering"),
    ],
)
async def test_what_cannot_be_is_refused(
    operators: Operators, settings: pb.Strategy, field: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await operators.stubs[0].SetStrategy(pb.SetStrategyRequest(strategy=settings))

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert field in (caught.value.details() or "")


async def test_quarantine_is_listed_and_released(operators: Operators) -> None:
    stub = operators.stubs[0]

    listed = await stub.ListQuarantined(pb.ListQuarantinedRequest())
    released = await stub.ReleaseQuarantined(pb.ReleaseQuarantinedRequest(request_ids=["none"]))

    assert (list(listed.requests), released.num_released) == ([], 0)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.ReleaseQuarantined(pb.ReleaseQuarantinedRequest(request_ids=["a b"]))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
