"""One scheduler replica, wired: store, delivery, membership, doors. The wiring is on this screen."""

import asyncio
import contextlib
import logging
import time
import uuid
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection

from scheduler_service.config import SchedulerSettings
from scheduler_service.delivery import Delivery, keep_watching
from scheduler_service.doors.generation import GenerationServicer
from scheduler_service.doors.operations import OperationsServicer
from scheduler_service.doors.status import StatusInterceptor
from scheduler_service.driver import Driver
from scheduler_service.driver_values import DriverContext, DriverSettings, WorkerLink
from scheduler_service.membership import Membership, MembershipSettings
from scheduler_service.pool_strategy import PoolStrategy
from scheduler_service.seen_worker import WorkerPort
from scheduler_service.serving import Serving
from scheduler_service.step_file import StepFile
from scheduler_service.step_log import StepLog
from scheduler_service.step_notes import StepNote
from scheduler_service.store.redis_store import RedisStore
from scheduler_service.stored_request import spec_from_bytes
from scheduler_service.text import TextCodec
from scheduler_service.text_stops import CodecTextStops
from scheduler_service.worker_client import WorkerClient
from scheduler_service.worker_facts import fetch_model, limits_of
from scheduler_service.worker_names import resolve_names
from shared.pb import generation_pb2_grpc, operations_pb2_grpc
from shared.serving_process import announce, bind, wait_stop_signal
from shared.strategy import StrategySettings
from shared.types import WorkerDescription
from shared.validation import Capacity, RequestLimits

logger = logging.getLogger("scheduler")

GENERATION = "tokentide.v1.Generation"
OPERATIONS = "tokentide.v1.Operations"
WATCH_REFRESH_S = 4.0
HEALTH_S = 0.25
STOP_GRACE_S = 1.0
LAST_STREAMS_S = (
    5.0  # for streams to take their last word: a stream that is cut is told CANCELLED by grpc
)
MAX_REQUEST_BYTES = 8 * 1024 * 1024  # a prompt at its limit fits; parsing more would stop the loop

CLIENT_SERVER_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    ("grpc.http2.min_ping_interval_without_data_ms", 5000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),
)


async def serve(settings: SchedulerSettings) -> int:
    client_server = grpc.aio.server(
        interceptors=[StatusInterceptor()], options=CLIENT_SERVER_OPTIONS
    )
    operator_server = grpc.aio.server(
        interceptors=[StatusInterceptor()], options=CLIENT_SERVER_OPTIONS
    )
    ports = {
        "port": bind(client_server, settings.host, settings.port),
        "operations_port": bind(
            operator_server, settings.operations_host, settings.operations_port
        ),
    }
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(
            RedisStore.connect(
                settings.redis_url.get_secret_value(),
                pool=settings.pool,
                durability=settings.durability,
                claim_window=settings.claim_window,
                retention_s=settings.retention_s,
                unfit_timeout_ms=round(settings.unfit_timeout_s * 1000),
                max_queued_requests=settings.max_queued_requests,
                max_queued_tokens=settings.max_queued_tokens,
            )
        )
        replica = Replica(settings, store)
        stack.callback(replica.close)
        await replica.register(client_server, operator_server)
        await client_server.start()
        await operator_server.start()
        announce(settings.announce, ports)
        logger.info(
            "replica %s serves on %s:%d, durability '%s'",
            *(replica.replica_id, settings.host, ports["port"], settings.durability),
        )
        try:
            await replica.run_until_stopped()
        finally:
            await client_server.stop(STOP_GRACE_S)
            await operator_server.stop(STOP_GRACE_S)
            with contextlib.suppress(Exception):
                await store.leave(replica.replica_id)
    return 0


class Replica:
    """The parts of one replica and how they hang together."""

    def __init__(self, settings: SchedulerSettings, store: RedisStore) -> None:
        self._settings = settings
        self._store = store
        self.replica_id = settings.replica_id or uuid.uuid4().hex[:12]
        self._step_log = StepLog()
        self._step_file = StepFile(Path(settings.step_file)) if settings.step_file else None
        self._delivery = Delivery(store, self.replica_id)
        self._membership = Membership(
            replica_id=self.replica_id,
            store=store,
            resolve=lambda: resolve_names(settings.workers),
            connect=lambda address: WorkerClient(address, timeout_s=settings.driver_silence_s),
            make_driver=self._make_driver,
            welcome=self._welcome,
            settings=MembershipSettings(worker_silence_s=settings.driver_silence_s),
            rolled_back=self._delivery.recheck_all,
            cut_off=self._delivery.move_present,
        )
        self._strategy = PoolStrategy(
            store=store,
            membership=self._membership,
            own=StrategySettings.parse(settings.strategy),
            claim_window=settings.claim_window,
            max_sequences=settings.max_sequences,
        )
        self._serving = Serving(
            store=store,
            delivery=self._delivery,
            replica_id=self.replica_id,
            limits=RequestLimits(
                default_max_tokens=settings.default_max_tokens,
                default_disconnect_grace_ms=settings.disconnect_grace_ms,
            ),
            capacities=self.capacities,
            strategy=self._strategy.now,
            is_cut_off=lambda: self._membership.is_cut_off,
        )
        self._delivery.on_new_work = self._membership.ring
        self._driver_context = DriverContext(
            store=store,
            replica_id=self.replica_id,
            limits_of=lambda description: limits_of(settings, description),
            settings=DriverSettings(worker_silence_s=settings.driver_silence_s),
            read_spec=spec_from_bytes,
            strategy=self._strategy.now,
            open_text_stops=lambda: CodecTextStops(self._codec),
            committed=self._delivery.offer,
            record_step=self._record_step,
            clock_ns=time.perf_counter_ns,
            is_first_worker=self._membership.is_first_worker,
        )
        self._health = health_aio.HealthServicer()
        self._drain_asked = asyncio.Event()
        self._welcoming = asyncio.Lock()
        self._last_capacities: list[Capacity] = []

    def _record_step(self, note: StepNote) -> None:
        self._step_log.record(note)
        if self._step_file is not None:
            self._step_file.write(note)

    def close(self) -> None:
        if self._step_file is not None:
            self._step_file.close()
        if self._serving.model is not None:
            self._serving.model.text.close()

    async def register(
        self, client_server: grpc.aio.Server, operator_server: grpc.aio.Server
    ) -> None:
        generation_pb2_grpc.add_GenerationServicer_to_server(
            GenerationServicer(
                self._serving, self.capacities, lambda: len(self._membership.workers)
            ),
            client_server,
        )
        operations = OperationsServicer(
            replica_id=self.replica_id,
            serving=self._serving,
            delivery=self._delivery,
            membership=self._membership,
            step_log=self._step_log,
            drain=self._drain_asked.set,
            is_serving=self.is_serving,
            strategy=self._strategy,
            store=self._store,
        )
        operations_pb2_grpc.add_OperationsServicer_to_server(operations, operator_server)
        for server, name in ((client_server, GENERATION), (operator_server, OPERATIONS)):
            health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
            services = (name, "grpc.health.v1.Health", reflection.SERVICE_NAME)
            reflection.enable_server_reflection(services, server)
        await self._set_health(serving=False)

    # -- life --------------------------------------------------------------------------------------

    async def run_until_stopped(self) -> None:
        parts = [
            self._membership.run(),
            self._delivery.run(),
            self._serving.run_unwatching(),
            self._serving.run_rewatching(),
            self._show_health(),
            keep_watching(self._store, self.replica_id, self._serving.watched, WATCH_REFRESH_S),
        ]
        tasks = [asyncio.create_task(part) for part in parts]
        ends: list[asyncio.Task[Any]] = [
            asyncio.create_task(wait_stop_signal()),
            asyncio.create_task(self._drain_asked.wait()),
        ]
        try:
            await asyncio.wait((*tasks, *ends), return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()  # a part must not end by itself
            await self._drain()
        finally:
            for task in [*tasks, *ends]:
                task.cancel()
            await asyncio.gather(*tasks, *ends, return_exceptions=True)

    async def _drain(self) -> None:
        """NOT_SERVING first, then hand workers over, then tell streams to move."""
        logger.info("draining")
        self._serving.is_draining = True
        await self._health.enter_graceful_shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_s):
                await self._membership.drain()
        self._delivery.move_all()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_STREAMS_S):
                while self._delivery.num_streams:
                    await asyncio.sleep(0.02)

    # -- health ------------------------------------------------------------------------------------

    def is_serving(self) -> bool:
        """Can take a request and make progress with it."""
        return (
            not self._serving.is_draining
            and self._serving.model is not None
            and bool(self._membership.workers)
            and self._membership.is_store_there
        )

    async def _set_health(self, *, serving: bool) -> None:
        states = health_pb2.HealthCheckResponse
        state = states.SERVING if serving else states.NOT_SERVING
        for name in ("", GENERATION, OPERATIONS):
            await self._health.set(name, state)

    async def _show_health(self) -> None:
        shown = False
        while True:
            if self.is_serving() != shown:
                shown = not shown
                await self._set_health(serving=shown)
            await asyncio.sleep(HEALTH_S)

    # -- workers -----------------------------------------------------------------------------------

    def capacities(self) -> list[Capacity]:
        """Of the workers that are there; while there is none, of those that were last."""
        present = [
            Capacity(d.block_size, d.num_blocks, d.max_model_tokens)
            for d in (seen.description for seen in self._membership.workers.values())
        ]
        self._last_capacities = present or self._last_capacities
        return self._last_capacities

    async def _welcome(self, port: WorkerPort, description: WorkerDescription) -> None:
        """The first worker brings the tokenizer."""
        async with self._welcoming:
            if self._serving.model is None:
                assert isinstance(port, WorkerClient), "tokenizers come over grpc"
                self._serving.model = await fetch_model(port, description, self._settings)
                logger.info("serving model %s", description.model)

    def _make_driver(self, link: WorkerLink, description: WorkerDescription) -> Driver:
        return Driver(link, description, self._driver_context)

    def _codec(self) -> TextCodec:
        model = self._serving.model
        assert model is not None, "a worker is welcomed before it is driven"
        return model.codec
