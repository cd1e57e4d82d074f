"""The operators' service over gRPC, as readings. Protobuf ends here."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Self

import grpc

from shared.pb import operations_pb2 as pb
from shared.pb import operations_pb2_grpc
from shared.strategy import StrategySettings
from shared.wire.stats import blocks_from_pb, stats_from_pb, timings_from_pb
from shared.wire.strategy import strategy_from_pb, strategy_to_pb
from tokentide.client import CHANNEL_OPTIONS
from tokentide.commands.errors import CommandError
from tokentide.commands.readings import Loads, Scheduled, Step, Totals, WorkerReading
from tokentide.errors import error_of

CALL_TIMEOUT_S = 5.0


class OperationsClient:
    """`async with OperationsClient("localhost:50151") as operations: ...`"""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._channel = grpc.aio.insecure_channel(endpoint, options=CHANNEL_OPTIONS)
        self._stub = operations_pb2_grpc.OperationsStub(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close(None)

    async def wait_ready(self, timeout_s: float) -> None:
        """Until the endpoint takes calls. Raises CommandError."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._channel.channel_ready()
        except TimeoutError:
            message = f"no answer from {self.endpoint} within {timeout_s:g} s"
            raise CommandError(message) from None

    async def loads(self, timeout_s: float = 5.0) -> Loads:
        try:
            return loads_from_pb(await self._stub.GetLoads(pb.GetLoadsRequest(), timeout=timeout_s))
        except grpc.aio.AioRpcError as error:
            raise error_of(error) from error

    async def strategy(self, timeout_s: float = 5.0) -> StrategySettings:
        """In force in the pool."""
        call = self._stub.GetStrategy(pb.GetStrategyRequest(), timeout=timeout_s)
        return await _strategy_of(call)

    async def set_strategy(
        self, settings: StrategySettings | None, timeout_s: float = 5.0
    ) -> StrategySettings:
        """For all replicas of the pool; None: back to their own settings. What is in force then."""
        request = pb.SetStrategyRequest()
        if settings is not None:
            request.strategy.CopyFrom(strategy_to_pb(settings))
        return await _strategy_of(self._stub.SetStrategy(request, timeout=timeout_s))

    async def list_quarantined(self, limit: int = 100) -> list[dict[str, Any]]:
        reply = await self._call("ListQuarantined", pb.ListQuarantinedRequest(limit=limit))
        names = pb.QuarantinedRequest.DESCRIPTOR.fields_by_name
        return [{name: getattr(one, name) for name in names} for one in reply.requests]

    async def release_quarantined(self, request_ids: Sequence[str]) -> int:
        request = pb.ReleaseQuarantinedRequest(request_ids=request_ids)
        return int((await self._call("ReleaseQuarantined", request)).num_released)

    async def _call(self, name: str, request: Any) -> Any:
        try:
            return await getattr(self._stub, name)(request, timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise error_of(error) from error

    async def watch_loads(self, interval_ms: int) -> AsyncIterator[Loads]:
        async for message in _stream(
            self._stub.WatchLoads(pb.WatchLoadsRequest(interval_ms=interval_ms))
        ):
            yield loads_from_pb(message)

    async def watch_steps(self, *, replay_recent: bool = False) -> AsyncIterator[Step]:
        """Steps of the workers that this replica drives, as their results come in."""
        request = pb.WatchStepsRequest(replay_recent=replay_recent)
        async for message in _stream(self._stub.WatchSteps(request)):
            yield step_from_pb(message)


async def _strategy_of(call: Any) -> StrategySettings:
    try:
        return strategy_from_pb((await call).strategy)
    except grpc.aio.AioRpcError as error:
        raise error_of(error) from error


async def _stream(call: Any) -> AsyncIterator[Any]:
    try:
        async for message in call:
            yield message
    except grpc.aio.AioRpcError as error:
        raise error_of(error) from error
    finally:
        call.cancel()


def loads_from_pb(message: pb.Loads) -> Loads:
    return Loads(
        replica_id=message.replica_id,
        model=message.model,
        num_waiting=message.num_waiting,
        num_running=message.num_running,
        num_waiting_tokens=message.num_waiting_tokens,
        num_streams=message.num_streams,
        num_replicas=message.num_replicas,
        strategy=message.strategy,
        serving=message.serving,
        totals=Totals(**{name: getattr(message.totals, name) for name in Totals.__slots__}),
        workers=tuple(
            WorkerReading(
                name=worker.name,
                address=worker.address,
                driven_here=worker.driven_here,
                stats=stats_from_pb(worker.stats),
            )
            for worker in message.workers
        ),
    )


def step_from_pb(message: pb.StepRecord) -> Step:
    return Step(
        worker=message.worker,
        step_id=message.step_id,
        scheduled=tuple(
            Scheduled(s.request_id, s.num_tokens, s.is_decode, s.admitted)
            for s in message.scheduled
        ),
        blocks=blocks_from_pb(message.blocks),
        num_waiting=message.num_waiting,
        num_running=message.num_running,
        timings=timings_from_pb(message.timings),
        num_sampled=message.num_sampled,
        preempted=tuple(message.preempted),
        strategy=message.strategy,
    )
