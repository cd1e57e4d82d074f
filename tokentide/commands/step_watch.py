"""Step records of one replica with what was not scheduled, as readings. Protobuf ends here."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

import grpc

from shared.pb import operations_pb2 as pb
from shared.pb import operations_pb2_grpc
from tokentide.client import CHANNEL_OPTIONS
from tokentide.commands.operations_client import step_from_pb
from tokentide.commands.readings import Step
from tokentide.errors import error_of


@dataclass(frozen=True, slots=True)
class Skipped:
    """Who got nothing in a step, and why (`scheduler_service/planning/snapshot.py`, `SkipReason`)."""

    request_id: str  # empty: `count` others, which are not named
    reason: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SteppedRecord:
    step: Step
    skipped: tuple[Skipped, ...] = ()
    num_missed: int = 0  # records before this one that we were too slow for


async def watch_records(endpoint: str) -> AsyncGenerator[SteppedRecord, None]:
    """First those that the replica still has, then each as its result comes in. Raises TokentideError."""
    async with grpc.aio.insecure_channel(endpoint, options=CHANNEL_OPTIONS) as channel:
        stub = operations_pb2_grpc.OperationsStub(channel)
        call = stub.WatchSteps(pb.WatchStepsRequest(replay_recent=True))
        try:
            async for message in call:
                yield record_from_pb(message)
        except grpc.aio.AioRpcError as error:
            raise error_of(error) from error
        finally:
            call.cancel()


def record_from_pb(message: pb.StepRecord) -> SteppedRecord:
    return SteppedRecord(
        step=step_from_pb(message),
        skipped=tuple(Skipped(s.request_id, s.reason, max(s.count, 1)) for s in message.skipped),
        num_missed=message.num_missed,
    )
