"""The operators' door, `tokentide.v1.Operations`, on its own port."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict

import grpc

from scheduler_service.delivery import Delivery
from scheduler_service.driver_values import StepTotals
from scheduler_service.membership import Membership
from scheduler_service.pool_strategy import PoolStrategy
from scheduler_service.serving import Serving
from scheduler_service.step_log import StepLog
from scheduler_service.step_notes import StepNote
from scheduler_service.store.interface import RequestStore
from shared.pb import operations_pb2 as pb
from shared.pb import operations_pb2_grpc
from shared.validation import RequestLimits, check_request_ids
from shared.wire.operations import worker_load_to_pb
from shared.wire.stats import blocks_to_pb, timings_to_pb
from shared.wire.strategy import strategy_from_pb, strategy_to_pb

DEFAULT_INTERVAL_MS = 500
DEFAULT_LISTED = 100
MAX_LISTED = 1000


class OperationsServicer(operations_pb2_grpc.OperationsServicer):
    def __init__(  # noqa: PLR0913 (all that it is wired to)
        self,
        *,
        replica_id: str,
        serving: Serving,
        delivery: Delivery,
        membership: Membership,
        step_log: StepLog,
        drain: Callable[[], None],
        is_serving: Callable[[], bool],
        strategy: PoolStrategy,
        store: RequestStore,
    ) -> None:
        self._replica_id = replica_id
        self._serving = serving
        self._delivery = delivery
        self._membership = membership
        self._step_log = step_log
        self._drain = drain
        self._is_serving = is_serving
        self._strategy = strategy
        self._store = store

    async def GetLoads(
        self, request: pb.GetLoadsRequest, context: grpc.aio.ServicerContext
    ) -> pb.Loads:
        return self._loads()

    async def WatchLoads(
        self, request: pb.WatchLoadsRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.Loads]:
        interval_s = max((request.interval_ms or DEFAULT_INTERVAL_MS) / 1e3, 0.05)
        while True:
            yield self._loads()
            await asyncio.sleep(interval_s)

    async def WatchSteps(
        self, request: pb.WatchStepsRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.StepRecord]:
        async for note, num_missed in self._step_log.watch(replay_recent=request.replay_recent):
            record = note_to_pb(self._replica_id, note)
            record.num_missed = num_missed
            yield record

    async def SetStrategy(
        self, request: pb.SetStrategyRequest, context: grpc.aio.ServicerContext
    ) -> pb.SetStrategyReply:
        wanted = strategy_from_pb(request.strategy) if request.HasField("strategy") else None
        await self._strategy.set(wanted)
        return self._strategy_reply()

    async def GetStrategy(
        self, request: pb.GetStrategyRequest, context: grpc.aio.ServicerContext
    ) -> pb.SetStrategyReply:
        return self._strategy_reply()

    def _strategy_reply(self) -> pb.SetStrategyReply:
        strategy = strategy_to_pb(self._strategy.now())
        return pb.SetStrategyReply(strategy=strategy, is_pools=self._strategy.is_pools)

    async def ListQuarantined(
        self, request: pb.ListQuarantinedRequest, context: grpc.aio.ServicerContext
    ) -> pb.QuarantineList:
        most = min(request.limit or DEFAULT_LISTED, MAX_LISTED)
        found = await self._store.list_quarantined(most)
        return pb.QuarantineList(requests=[pb.QuarantinedRequest(**asdict(one)) for one in found])

    async def ReleaseQuarantined(
        self, request: pb.ReleaseQuarantinedRequest, context: grpc.aio.ServicerContext
    ) -> pb.ReleaseQuarantinedReply:
        check_request_ids(request.request_ids, RequestLimits())
        num = await self._store.release_quarantined(request.request_ids)
        return pb.ReleaseQuarantinedReply(num_released=num)

    async def Drain(
        self, request: pb.DrainRequest, context: grpc.aio.ServicerContext
    ) -> pb.DrainReply:
        self._drain()
        return pb.DrainReply()

    def _loads(self) -> pb.Loads:
        pool = self._membership.pool
        model = self._serving.model
        loads = pb.Loads(
            replica_id=self._replica_id,
            model=model.name if model else "",
            num_waiting=pool.num_waiting,
            num_running=pool.num_running,
            num_waiting_tokens=pool.num_waiting_tokens,
            num_streams=self._delivery.num_streams,
            num_tasks=len(asyncio.all_tasks()),
            num_replicas=len(self._membership.live_replicas()),
            totals=self._totals(),
            strategy=self._strategy.now().name,
            num_unread_tokens=pool.num_unread_tokens,
            serving=self._is_serving(),
        )
        for address, seen in sorted(self._membership.workers.items()):
            load = worker_load_to_pb(
                seen.stats,
                address=address,
                name=seen.description.name,
                driven_here=seen.driver is not None,
            )
            loads.workers.append(load)
        return loads

    def _totals(self) -> pb.StepTotals:
        totals = StepTotals()
        totals.add(self._membership.ended_totals)
        for driver in self._membership.drivers():
            totals.add(driver.totals)
        return pb.StepTotals(**{name: getattr(totals, name) for name in StepTotals.__slots__})


def note_to_pb(replica_id: str, note: StepNote) -> pb.StepRecord:
    record = pb.StepRecord(
        replica_id=replica_id,
        incarnation=note.incarnation,
        worker=note.worker,
        epoch=note.epoch,
        step_id=note.step_id,
        preempted=note.preempted,
        num_waiting=note.num_waiting,
        num_running=note.num_running,
        timings=timings_to_pb(note.timings),
        predicted_ns=note.predicted_ns,
        plan_ns=note.plan_ns,
        num_sampled=note.num_sampled,
        strategy=note.strategy,
        num_planned_tokens=sum(s.num_tokens for s in note.scheduled),
    )
    for item in note.scheduled:
        record.scheduled.add(
            request_id=item.request_id,
            num_tokens=item.num_tokens,
            is_decode=item.is_decode,
            admitted=item.is_admitted,
        )
    for skipped in note.skipped:
        record.skipped.add(
            request_id=skipped.request_id, reason=skipped.reason, count=skipped.count
        )
    for admitted in note.admitted:
        record.admitted.add(**asdict(admitted))
    for ended in note.ended:
        record.ended.add(**asdict(ended))
    if note.blocks is not None:
        record.blocks.CopyFrom(blocks_to_pb(note.blocks))
    return record
