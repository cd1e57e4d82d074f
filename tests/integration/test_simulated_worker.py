"""A scheduler cannot tell a simulated worker from a real one: processes, streams, cancels, blocks."""

import asyncio

import grpc
import pytest
from running_stack import running_stack

from shared.pb import operations_pb2 as ops
from shared.pb import operations_pb2_grpc, worker_pb2, worker_pb2_grpc
from tokentide import Client
from tokentide.local_stack import StackSpec
from tokentide.processes import ServiceProcess
from worker_service.simulated.tokenizer_folder import write_tokenizer_folder

pytestmark = [pytest.mark.stack, pytest.mark.slow]

NUM_STREAMS = 48


@pytest.fixture(scope="module")
def simulated_stack(tmp_path_factory):
    """One scheduler, one simulated H100 with a small cache."""
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer_folder(folder, 4096)
    lengths = ("--simulate-lengths", "exponential:20:60")
    spec = StackSpec(
        model_dir=folder,
        worker_args=("--simulate", "h100-sxm-llama-3.1-8b", "--num-blocks", "96", *lengths),
    )
    with running_stack(spec) as stack:
        yield stack


async def output_of(client: Client, number: int, **options) -> tuple[list[int], str]:
    options = {"max_tokens": 80, "seed": number, **options}
    chunks = client.generate(f"prompt {number} " * (1 + number % 7), **options)
    ids: list[int] = []
    reason = ""
    async for chunk in chunks:
        ids += chunk.token_ids
        if chunk.finish is not None:
            reason = chunk.finish.reason
    return ids, reason


async def test_streams_end_as_drawn_and_the_same_again(simulated_stack):
    async with Client(simulated_stack.endpoints) as client:
        first = await asyncio.gather(*(output_of(client, n) for n in range(NUM_STREAMS)))
        again = await asyncio.gather(*(output_of(client, n) for n in reversed(range(NUM_STREAMS))))

    assert first == again[::-1]
    assert {reason for _, reason in first} == {"stop_token"}
    assert len({len(ids) for ids, _ in first}) > 10


async def test_ignoring_the_end_runs_to_max_tokens(simulated_stack):
    async with Client(simulated_stack.endpoints) as client:
        ids, reason = await output_of(client, 1, ignore_eos=True)

    assert len(ids) == 80
    assert reason == "length"


async def test_a_reader_that_leaves_gives_its_blocks_back(simulated_stack):
    endpoint = simulated_stack.operations_endpoints[0]
    async with Client(simulated_stack.endpoints) as client:
        chunks = client.generate("hello", max_tokens=1000, ignore_eos=True)
        await anext(chunks)
        await chunks.aclose()

    async with asyncio.timeout(30), grpc.aio.insecure_channel(endpoint) as channel:
        watch = operations_pb2_grpc.OperationsStub(channel).WatchLoads(
            ops.WatchLoadsRequest(interval_ms=50)
        )
        async for loads in watch:
            blocks = loads.workers[0].stats.blocks
            if not loads.num_running and blocks.held == 0:
                break
    assert blocks.free + blocks.cached == blocks.total == 96


async def test_without_a_model_it_serves_a_tokenizer_of_its_own(tmp_path):
    args = ["--simulate", "l4-llama-3.1-8b", "--host", "127.0.0.1", "--port", "0"]
    worker = ServiceProcess("worker", tmp_path, "worker_service", args)
    await worker.start()
    try:
        await worker.wait_ready(60)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{worker.ports['port']}") as channel:
            stub = worker_pb2_grpc.WorkerStub(channel)
            described = await stub.Describe(worker_pb2.DescribeRequest())
            files = [file async for file in stub.GetTokenizer(worker_pb2.GetTokenizerRequest())]
            stats = await anext(aiter(stub.WatchStats(worker_pb2.WatchStatsRequest())))
    finally:
        await worker.stop()

    assert described.model == "Llama-3.1-8B"
    assert {"tokenizer.json", "tokenizer_config.json", "config.json"} <= {f.path for f in files}
    assert stats.blocks.free == described.num_blocks
