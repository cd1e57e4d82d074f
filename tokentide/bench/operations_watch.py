"""The service's own account of a load: its sums before and after, and the steps in between.

Talks to the operators' port of every replica: sums add up over them.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Self

import grpc

from shared.pb import operations_pb2 as pb
from shared.pb import operations_pb2_grpc
from tokentide.commands.operations_client import step_from_pb
from tokentide.commands.readings import Step, Totals

CALL_S = 10.0
SETTLE_S = 0.05  # between two readings of sums that should stand still
MAX_READINGS = 100
DURATIONS = ("prepare_ns", "forward_ns", "sample_ns", "total_ns")
MAX_MESSAGE_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All replicas at one instant."""

    totals: Totals
    num_waiting: int
    num_running: int
    num_workers: int
    blocks_per_worker: float
    is_serving: bool
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpan:
    """A step and when it ran, in seconds of our own clock."""

    began_s: float
    ended_s: float
    step: Step


@dataclass(slots=True)
class Steps:
    """What the step records said: when each request was first in a step, and what steps took."""

    keeps_spans: bool = False  # they are large: whole records
    spans: list[StepSpan] = field(default_factory=list)
    first_in_step_s: dict[str, float] = field(default_factory=dict)
    prepare_ns: list[int] = field(default_factory=list)
    forward_ns: list[int] = field(default_factory=list)
    sample_ns: list[int] = field(default_factory=list)
    total_ns: list[int] = field(default_factory=list)

    def add(self, record: pb.StepRecord, received_s: float) -> None:
        """A record comes when its step is over: it began `total_ns` before, by our own clock."""
        began_s = received_s - record.timings.total_ns / 1e9
        for scheduled in record.scheduled:
            if scheduled.admitted:
                self.first_in_step_s.setdefault(scheduled.request_id, began_s)
        for name in DURATIONS:
            getattr(self, name).append(getattr(record.timings, name))
        if self.keeps_spans:
            span = StepSpan(began_s=began_s, ended_s=received_s, step=step_from_pb(record))
            self.spans.append(span)

    def forget_durations(self) -> None:
        for name in DURATIONS:
            getattr(self, name).clear()


class OperationsWatch:
    """`async with OperationsWatch(endpoints) as watch:` Without endpoints, all it reads is zero."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self._endpoints = list(endpoints)
        self._channels: list[grpc.aio.Channel] = []
        self._stubs: list[operations_pb2_grpc.OperationsStub] = []

    async def __aenter__(self) -> Self:
        options = [("grpc.max_receive_message_length", MAX_MESSAGE_BYTES)]
        for endpoint in self._endpoints:
            channel = grpc.aio.insecure_channel(endpoint, options=options)
            self._channels.append(channel)
            self._stubs.append(operations_pb2_grpc.OperationsStub(channel))
        return self

    async def __aexit__(self, *_: object) -> None:
        for channel in self._channels:
            await channel.close(None)

    def __bool__(self) -> bool:
        return bool(self._endpoints)

    async def read(self) -> Reading:
        """Raises grpc.aio.AioRpcError."""
        calls = [
            stub.GetLoads(pb.GetLoadsRequest(), timeout=CALL_S, wait_for_ready=True)
            for stub in self._stubs
        ]
        return _combined(await asyncio.gather(*calls))

    async def wait_serving(self, timeout_s: float) -> Reading:
        """Raises TimeoutError with one line."""
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + timeout_s
        while True:
            reading = await self.read()
            if reading.is_serving and reading.num_workers:
                return reading
            if loop.time() > give_up_s:
                raise TimeoutError(
                    f"the service takes no requests after {timeout_s:.0f} s: {reading}"
                )
            await asyncio.sleep(SETTLE_S)

    async def read_settled(self) -> Reading:
        """After a load: the last commit is counted a little after the last token came."""
        last = await self.read()
        for _ in range(MAX_READINGS):
            await asyncio.sleep(SETTLE_S)
            reading = await self.read()
            if reading.totals == last.totals and not reading.num_running:
                return reading
            last = reading
        return last

    @contextlib.asynccontextmanager
    async def steps(self, *, keep_spans: bool = False) -> AsyncIterator[Steps]:
        """Collects while the block runs. Read the sums before the load: then the watch is surely open."""
        steps = Steps(keeps_spans=keep_spans)
        tasks = [asyncio.create_task(self._collect(stub, steps)) for stub in self._stubs]
        try:
            yield steps
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _collect(self, stub: operations_pb2_grpc.OperationsStub, steps: Steps) -> None:
        call = stub.WatchSteps(pb.WatchStepsRequest())
        loop = asyncio.get_running_loop()
        try:
            async for record in call:
                steps.add(record, loop.time())
        except grpc.aio.AioRpcError:
            return  # the replica left: its requests have no queue time
        finally:
            call.cancel()


def _combined(loads: Sequence[pb.Loads]) -> Reading:
    names = [f.name for f in fields(Totals)]
    sums = {name: sum(getattr(load.totals, name) for load in loads) for name in names}
    workers = {w.stats.incarnation: w.stats.blocks.total for load in loads for w in load.workers}
    return Reading(
        totals=Totals(**sums),
        num_waiting=max((load.num_waiting for load in loads), default=0),
        num_running=max((load.num_running for load in loads), default=0),
        num_workers=len(workers),
        blocks_per_worker=sum(workers.values()) / len(workers) if workers else 0.0,
        is_serving=any(load.serving for load in loads),
        model=next((load.model for load in loads if load.model), ""),
    )
