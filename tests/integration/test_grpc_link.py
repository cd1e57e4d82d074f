"""Garbage on a Drive stream, either way: that stream ends with a clear line, and nothing else does."""

import asyncio
import logging
from contextlib import asynccontextmanager
from functools import partial

import grpc
import pytest
from fake_worker import FakeWorker

from scheduler_service.worker_client import WorkerClient
from scheduler_service.worker_stream import WorkerStream
from shared.errors import WorkerLost
from shared.pb import worker_pb2 as pb
from shared.pb import worker_pb2_grpc
from shared.types import BatchPlan, DriverHeartbeat, Hello, Resident, StepResult, WorkerDescription
from shared.wire.plan import driver_message_to_pb
from worker_service.servicer import WorkerServicer
from worker_service.session import WorkerSession

GARBAGE = {
    "no protobuf": b"\xff\xff\xff\xff",
    "cut short": b"\x0a\x64ab",  # a field of 100 bytes, of which two came
    "no UTF-8": b"\x0a\x04\x12\x02\xff\xfe",  # a text in the first field's message
}
DRIVE = "/tokentide.v1.Worker/Drive"


class Compute(FakeWorker):
    async def execute(self, plan):
        return super().execute(plan)


@pytest.fixture
async def session():
    description = WorkerDescription(
        incarnation="i",
        name="w",
        model="tiny",
        fingerprint="f",
        dtype="float32",
        device="cpu",
        block_size=16,
        num_blocks=64,
        max_model_tokens=100,
        logits_width=1000,
        eos_token_ids=(),
    )
    session = WorkerSession(description, Compute(), draw_incarnation=lambda: "j")
    running = asyncio.create_task(session.run())
    yield session
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@asynccontextmanager
async def served(add_to_server):
    server = grpc.aio.server()
    add_to_server(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


@pytest.fixture
async def address(session, tmp_path):
    servicer = WorkerServicer(session, tmp_path)
    add = partial(worker_pb2_grpc.add_WorkerServicer_to_server, servicer)
    async with served(add) as address:
        yield address


@asynccontextmanager
async def driving(address):
    """A driver's stream, before its hello."""
    client = WorkerClient(address, timeout_s=5)
    stream = WorkerStream(client.drive(), 5.0)
    try:
        yield stream
    finally:
        stream.close()
        await client.close()


def lines_of(caplog) -> list[str]:
    assert all(record.exc_info is None for record in caplog.records), caplog.text
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


async def status_after(address: str, *packed: bytes) -> tuple[grpc.StatusCode, str]:
    """How a Drive stream ends that carried these bytes."""
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.stream_stream(DRIVE)()
        async with asyncio.timeout(20):
            for data in packed:
                await call.write(data)
            try:
                while await call.read() is not grpc.aio.EOF:
                    pass
            except grpc.aio.AioRpcError:
                pass
            return await call.code(), await call.details()


@pytest.mark.parametrize("name", GARBAGE)
async def test_garbage_in_place_of_a_hello_is_an_invalid_argument(address, caplog, name):
    code, details = await status_after(address, GARBAGE[name])

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "does not parse" in details
    assert len(lines_of(caplog)) == 1


@pytest.mark.parametrize("name", GARBAGE)
async def test_garbage_of_a_driver_ends_its_stream_and_the_worker_can_be_driven(
    address, caplog, name
):
    hello = driver_message_to_pb(Hello(replica_id="a")).SerializeToString()

    code, details = await status_after(address, hello, GARBAGE[name])

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "does not parse" in details
    assert len(lines_of(caplog)) == 1
    async with driving(address) as stream:
        assert (await step(stream, await stream.hello("b"))).step_id == 1


async def test_garbage_on_another_stream_leaves_the_driver_alone(address):
    async with driving(address) as stream:
        resident = await stream.hello("a")

        for garbage in GARBAGE.values():
            await status_after(address, garbage)

        result = await step(stream, resident)
    assert (result.step_id, result.epoch) == (1, resident.epoch)


async def step(stream: WorkerStream, resident: Resident) -> StepResult:
    await stream.send(BatchPlan(epoch=resident.epoch, step_id=resident.last_step_id + 1))
    while not isinstance(message := await stream.receive(), StepResult):
        pass
    return message


class BrokenWorker:
    """Answers every message of Drive with the same bytes."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self.is_left = asyncio.Event()

    def add_to(self, server: grpc.aio.Server) -> None:
        handler = grpc.stream_stream_rpc_method_handler(self._drive)
        handlers = grpc.method_handlers_generic_handler("tokentide.v1.Worker", {"Drive": handler})
        server.add_generic_rpc_handlers((handlers,))

    async def _drive(self, request_iterator, context):
        try:
            async for _ in request_iterator:
                yield self._answer
        finally:
            self.is_left.set()


MEANINGLESS = {
    "no kind": pb.WorkerMessage(),
    "half a number": pb.WorkerMessage(step_result=pb.StepResult(handles=b"123")),
    "unequal columns": pb.WorkerMessage(step_result=pb.StepResult(handles=b"1234")),
    "counts of other ids": pb.WorkerMessage(replay=pb.StepResult(sampled_ids=b"1234")),
    "half an output id": pb.WorkerMessage(
        resident=pb.Resident(sequences=[pb.ResidentSequence(output_ids=b"12345")])
    ),
}
ANSWERS = GARBAGE | {name: message.SerializeToString() for name, message in MEANINGLESS.items()}


@pytest.mark.parametrize("name", ANSWERS)
async def test_a_worker_that_sends_garbage_is_lost_and_left(caplog, name):
    worker = BrokenWorker(ANSWERS[name])

    async with served(worker.add_to) as address, driving(address) as stream:
        with pytest.raises(WorkerLost):
            await stream.hello("a")

        async with asyncio.timeout(20):
            await worker.is_left.wait()
        with pytest.raises(WorkerLost):
            await stream.send(DriverHeartbeat())

    (line,) = lines_of(caplog)
    assert line.startswith(f"a stream of {address} is given up: ")
