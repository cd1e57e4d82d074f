"""A whole service on one virtual clock: real driver, membership, delivery, serving, worker session and
client loop, over simulated links, the store model and fake engines."""

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from auditor import Auditor
from fake_worker import FakeWorker
from network import Life, RemoteStore, SimLink, link_pair
from store_model import StoreModel
from streams import SimStreams

from scheduler_service.delivery import Delivery, keep_watching
from scheduler_service.driver import Driver
from scheduler_service.driver_values import DriverContext, DriverSettings
from scheduler_service.membership import Membership, MembershipSettings
from scheduler_service.planning.snapshot import Limits
from scheduler_service.pool_strategy import PoolStrategy
from scheduler_service.serving import ServedModel, Serving
from scheduler_service.stored_request import spec_from_bytes
from scheduler_service.text_stops import CodecTextStops
from shared.errors import ServingError, WorkerGone, WorkerLost
from shared.strategy import StrategySettings
from shared.types import BatchPlan, FinishReason, StepResult, WorkerDescription, WorkerStats
from shared.validation import Capacity, RawRequest, RequestLimits
from tokentide.resume import RetrySettings, StreamBroken, resuming
from worker_service.session import WorkerSession
from worker_service.session_values import SessionLimits

OpenStore = Callable[..., Any]  # given now_ms and draw_nonce

MODEL = "fake"
BLOCK_SIZE = 16
NUM_BLOCKS = 48
MAX_MODEL_TOKENS = 4096
DRAIN_S = 10.0
NOBODY_ANSWERED = "nobody answered"
LIMITS = Limits(token_budget=64, max_sequences=8, max_bypasses=4)


class FakeCodec:
    """Ids as text: token 7 is `<7>`."""

    def detokenizer(self) -> "FakeCodec":
        return self

    def push_one(self, token_id: int) -> str:
        return f"<{token_id}>"

    def flush(self) -> str:
        return ""


class SimCompute:
    """`session.Compute` over a fake engine: steps take virtual time, and are audited."""

    def __init__(self, engine: FakeWorker, rng: random.Random, auditor: Auditor) -> None:
        self._engine = engine
        self._rng = rng
        self._auditor = auditor
        self.incarnation = ""
        self.extra_s = 0.0  # the next step is longer by so much
        self.session: WorkerSession
        self.resident = engine.resident
        self.blocks = engine.blocks
        self.memory = engine.memory
        self.forget_all = engine.forget_all

    async def execute(self, plan: BatchPlan) -> StepResult:
        self._auditor.on_step(self.incarnation, plan, self.session.stats().epoch, LIMITS)
        await asyncio.sleep(0.005 + 0.02 * self._rng.random() + self.extra_s)
        self.extra_s = 0.0
        result = self._engine.execute(plan)
        self._auditor.failed |= self._engine.failed_ids
        self._auditor.on_result(self.incarnation, result)
        self._auditor.on_outbox(self.incarnation, len(self.session._outbox))
        return result

    def fail_a_row(self) -> None:
        self._engine.num_failing_rows = 1


class SimWorker:
    def __init__(self, cluster: "Cluster", address: str, num_blocks: int) -> None:
        self.address = address
        self.life = Life(address)
        self._rng = cluster.rng
        incarnation = cluster.draw_name()
        salt = incarnation if cluster.auditor.is_divergent else ""
        engine = FakeWorker(num_blocks=num_blocks, salt=salt)
        self.compute = SimCompute(engine, cluster.rng, cluster.auditor)
        self.compute.incarnation = incarnation
        description = WorkerDescription(
            incarnation=self.compute.incarnation,
            name=address,
            model=MODEL,
            fingerprint="fingerprint",
            dtype="float32",
            device="none",
            block_size=BLOCK_SIZE,
            num_blocks=num_blocks,
            max_model_tokens=MAX_MODEL_TOKENS,
            logits_width=1000,
            eos_token_ids=(),
        )
        self.session = WorkerSession(
            description,
            self.compute,
            draw_incarnation=self._draw_incarnation(cluster),
            limits=SessionLimits(),
        )
        self.compute.session = self.session
        self.life.spawn(self.session.run())

    def _draw_incarnation(self, cluster: "Cluster") -> Any:
        def draw() -> str:
            self.compute.incarnation = cluster.draw_name()
            return self.compute.incarnation

        return draw


class SimPort:
    """`membership.WorkerPort` to whatever worker lives at an address."""

    def __init__(self, cluster: "Cluster", replica: Life, address: str) -> None:
        self.address = address
        self._cluster = cluster
        self._replica = replica
        self._path = cluster.path(replica.name, address)

    def _worker(self) -> SimWorker:
        worker = self._cluster.workers.get(self.address)
        if worker is None or not worker.life.is_alive:
            raise WorkerGone(f"nobody answers at {self.address}")
        return worker

    async def describe(self) -> WorkerDescription:
        await self._cluster.delay()
        await self._path.wait_going()
        return self._worker().session.description

    async def watch_stats(self, interval_s: float) -> AsyncIterator[WorkerStats]:
        worker = self._worker()
        while worker.life.is_alive:
            await self._path.wait_going()
            yield worker.session.stats()
            await worker.session.wait_stats(interval_s)
            if worker.session.is_over:
                break
        raise WorkerLost("it died")

    def drive(self) -> SimLink:
        near, far = link_pair(self._cluster.rng, self._cluster.max_delay_s, self._path)
        self._replica.own(near)
        try:
            worker = self._worker()
        except WorkerLost:
            near.close()
            return near
        worker.life.own(far)
        worker.life.spawn(worker.session.drive(far))
        return near

    async def close(self) -> None: ...


class SimReplica:
    """One scheduler replica: the same parts as `service.Replica`, without grpc and tokenizers."""

    def __init__(self, cluster: "Cluster", replica_id: str) -> None:
        self.life = Life(replica_id)
        self._cluster = cluster
        self.store = RemoteStore(
            cluster.store, cluster.rng, cluster.max_delay_s, self.life, cluster.auditor.witness
        )
        self.delivery = Delivery(self.store, replica_id)
        self.membership = Membership(
            replica_id=replica_id,
            store=self.store,
            resolve=self._resolve,
            connect=lambda address: SimPort(cluster, self.life, address),
            make_driver=self._make_driver,
            welcome=self._welcome,
            settings=MembershipSettings(stable_s=3.0),
            rolled_back=self.delivery.recheck_all,
            cut_off=self.delivery.move_present,
        )
        self.strategy = PoolStrategy(
            store=self.store,
            membership=self.membership,
            own=StrategySettings(),
            claim_window=64,
            max_sequences=8,
        )
        self.serving = Serving(
            store=self.store,
            delivery=self.delivery,
            replica_id=replica_id,
            limits=RequestLimits(),
            capacities=lambda: [Capacity(BLOCK_SIZE, NUM_BLOCKS, MAX_MODEL_TOKENS)],
            strategy=self.strategy.now,
            is_cut_off=lambda: self.membership.is_cut_off,
            draw_seed=lambda: cluster.rng.getrandbits(64),
        )
        self.serving.model = ServedModel(
            name=MODEL,
            fingerprint="fingerprint",
            eos_token_ids=(),
            logits_width=1000,
            codec=FakeCodec(),
            text=None,
        )
        self.delivery.on_new_work = self.membership.ring
        for part in (
            self.membership.run(),
            self.delivery.run(),
            self.serving.run_unwatching(),
            self.serving.run_rewatching(),
            keep_watching(self.store, replica_id, self.serving.watched, 4.0),
        ):
            self.life.spawn(part)

    async def _resolve(self) -> Sequence[str]:
        return self._cluster.addresses

    async def _welcome(self, port: Any, description: WorkerDescription) -> None: ...

    def _make_driver(self, link: Any, description: WorkerDescription) -> Driver:
        context = DriverContext(
            store=self.store,
            replica_id=self.life.name,
            limits_of=lambda _: LIMITS,
            settings=DriverSettings(),
            read_spec=spec_from_bytes,
            strategy=self.strategy.now,
            open_text_stops=lambda: CodecTextStops(FakeCodec),
            committed=self.delivery.offer,
            record_step=lambda note: None,
            clock_ns=lambda: int(asyncio.get_running_loop().time() * 1e9),
            is_first_worker=self.membership.is_first_worker,
        )
        return Driver(link, description, context)


class Cluster:
    def __init__(
        self,
        seed: int,
        *,
        num_replicas: int = 2,
        num_blocks: tuple[int, ...] = (NUM_BLOCKS,) * 2,
        is_divergent: bool = False,
        open_store: OpenStore = StoreModel,
    ) -> None:
        """`num_blocks`: of each worker. `is_divergent`: each worker would go on with other tokens."""
        self.rng = random.Random(seed)
        self.max_delay_s = self.rng.choice((0.001, 0.01, 0.05))
        self.auditor = Auditor()
        self.auditor.is_divergent = is_divergent
        loop = asyncio.get_running_loop()
        self.store = open_store(
            now_ms=lambda: int(loop.time() * 1e3),
            draw_nonce=lambda: self.rng.getrandbits(64),
        )
        self._paths: dict[tuple[str, str], Life] = {}
        self._names = itertools.count()
        self.num_blocks = {f"worker-{n}": num for n, num in enumerate(num_blocks)}
        self.addresses = list(self.num_blocks)
        self.replica_ids = [f"replica-{n}" for n in range(num_replicas)]
        self.workers = {a: SimWorker(self, a, n) for a, n in self.num_blocks.items()}
        self.replicas = {r: SimReplica(self, r) for r in self.replica_ids}

    def draw_name(self) -> str:
        return f"incarnation-{next(self._names)}"

    async def delay(self) -> None:
        await asyncio.sleep(self.rng.random() * self.max_delay_s)

    # -- faults ------------------------------------------------------------------------------------

    async def kill_replica(self, replica_id: str) -> None:
        await self.replicas[replica_id].life.kill()

    def restart_replica(self, replica_id: str) -> None:
        if self.replicas[replica_id].life.is_alive:
            return  # somebody has: two cannot live at one address
        self.replicas[replica_id] = SimReplica(self, replica_id)

    def path(self, replica_id: str, address: str) -> Life:
        """Between a replica and a worker; cut off like a process."""
        key = (replica_id, address)
        return self._paths.setdefault(key, Life(f"{replica_id} to {address}"))

    async def cut_off(self, life: Life, for_s: float) -> None:
        """A stopped process, or a partition: nothing passes, then all of it, late."""
        life.hold()
        await asyncio.sleep(for_s)
        life.go_on()

    async def kill_worker(self, address: str) -> None:
        await self.workers[address].life.kill()

    def restart_worker(self, address: str) -> None:
        if self.workers[address].life.is_alive:
            return
        self.workers[address] = SimWorker(self, address, self.num_blocks[address])

    async def drain_worker(self, address: str) -> None:
        """As its process does at SIGTERM."""
        worker = self.workers[address]
        if worker.life.is_alive:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_S):
                    await worker.session.drain()
            await worker.life.kill()

    async def drain_replica(self, replica_id: str) -> None:
        replica = self.replicas[replica_id]
        if replica.life.is_alive:
            replica.serving.is_draining = True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_S):
                    await replica.membership.drain()
            replica.delivery.move_all()
            await asyncio.sleep(1.0)
            await replica.life.kill()

    def replica_driving(self, address: str) -> str | None:
        return self.workers[address].session.stats().driver or None

    def set_store_reachable(self, is_reachable: bool) -> None:
        for replica in self.replicas.values():
            replica.store.is_reachable = is_reachable

    async def stop(self) -> None:
        lives = [r.life for r in self.replicas.values()] + [w.life for w in self.workers.values()]
        for life in lives:
            await life.kill()
        await self.auditor.read_ends(self.store)

    # -- clients -----------------------------------------------------------------------------------

    async def client(self, raw: RawRequest) -> FinishReason | str:
        """Read one request to its end, whatever happens. Returns how it ended."""
        chunks = resuming(
            SimStreams(self, raw),
            request_id=None,
            settings=RetrySettings(),
            jitter=self.rng.random,
        )
        finish: FinishReason | str = "nothing"
        try:
            async for chunk in chunks:
                self.auditor.on_delivered(raw.request_id, chunk)
                if chunk.finish is not None:
                    finish = chunk.finish.reason
        except ServingError as error:
            finish = type(error).__name__
        except StreamBroken:
            if self.auditor.has_heard(raw.request_id):
                raise
            finish = NOBODY_ANSWERED  # not accepted as far as it knows; it is told so
            self.auditor.cancelled.add(raw.request_id)
        self.auditor.on_client_end(raw.request_id, finish)
        return finish

    async def leaving_client(self, raw: RawRequest, after: float) -> None:
        """Goes away in the middle, as `Client` does it: it says so once, to whom it reaches."""
        self.auditor.cancelled.add(raw.request_id)
        reading = asyncio.create_task(self.client(raw))
        await asyncio.wait((reading,), timeout=after)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        alive = [replica for replica in self.replicas.values() if replica.life.is_alive]
        if alive:
            with contextlib.suppress(ServingError):
                await self.rng.choice(alive).serving.cancel([raw.request_id])
