"""A whole stack on one machine: embedded store (or a given one), workers, schedulers, as child processes."""

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from shared.settings import without_settings
from tokentide.processes import INTERPRETER, ServiceFailed, ServiceProcess
from tokentide.store_process import StoreProcess
from tokentide.undisturbed import undisturbed

LOOPBACK = "127.0.0.1"
STORE_VARIABLE = "TOKENTIDE_SCHEDULER_REDIS_URL"
START_WORKER_S = 300.0
START_SCHEDULER_S = 60.0
STABLE_S = 60.0  # one that ran so long may die once more
MAX_DEATHS = 5

Result = TypeVar("Result")
Report = Callable[[str], None]
Process = ServiceProcess | StoreProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSpec:
    model_dir: Path
    num_workers: int = 1
    num_schedulers: int = 1
    redis_url: str = ""  # empty: the embedded store
    data_dir: Path | None = None  # of the embedded store; None: a temporary one
    appendfsync: str = "always"
    host: str = LOOPBACK
    port: int = 0  # of the first scheduler; the others follow. 0 = any
    operations_port: int = 0
    worker_port: int = 0
    worker_args: tuple[str, ...] = ()
    scheduler_args: tuple[str, ...] = ()
    log_dir: Path | None = None  # None: a temporary one
    inherits_settings: bool = False  # those of the services in our environment hold in theirs too
    interpreter: tuple[str, ...] = INTERPRETER  # a profiler's command, say


@dataclass(slots=True)
class LocalStack:
    """What runs. `restart` brings one of its processes back on the same ports."""

    spec: StackSpec
    run_dir: Path
    redis_url: str
    store: StoreProcess | None = None  # the embedded one
    workers: list[ServiceProcess] = field(default_factory=list)
    schedulers: list[ServiceProcess] = field(default_factory=list)

    @property
    def endpoints(self) -> list[str]:
        return [f"{self.spec.host}:{s.ports['port']}" for s in self.schedulers]

    @property
    def operations_endpoints(self) -> list[str]:
        return [f"{self.spec.host}:{s.ports['operations_port']}" for s in self.schedulers]

    async def start_workers(self) -> None:
        spec = self.spec
        for number in range(spec.num_workers):
            port = spec.worker_port + number if spec.worker_port else 0
            args = ["--model", str(spec.model_dir), "--host", spec.host, "--port", str(port)]
            args += ["--name", f"worker-{number}", *spec.worker_args]
            label = f"worker-{number}"
            worker = self._service(label, "worker_service", args)
            self.workers.append(worker)
            await worker.start()
        await asyncio.gather(*(worker.wait_ready(START_WORKER_S) for worker in self.workers))

    def _service(self, label: str, module: str, args: list[str]) -> ServiceProcess:
        return ServiceProcess(
            label, self.run_dir, module, args, self.spec.interpreter, self.environment()
        )

    def environment(self) -> dict[str, str]:
        """With the store's address, which holds a password: not for `ps` to show. No other store may be named."""
        inherited = {k: v for k, v in os.environ.items() if k.upper() != STORE_VARIABLE}
        if not self.spec.inherits_settings:
            inherited = without_settings(inherited)
        return {**inherited, STORE_VARIABLE: self.redis_url}

    async def start_schedulers(self) -> None:
        spec = self.spec
        addresses = ",".join(f"{spec.host}:{w.ports['port']}" for w in self.workers)
        for number in range(spec.num_schedulers):
            port = spec.port + number if spec.port else 0
            operations_port = spec.operations_port + number if spec.operations_port else 0
            args = ["--host", spec.host, "--port", str(port)]
            args += ["--operations-host", spec.host, "--operations-port", str(operations_port)]
            args += ["--workers", addresses, "--replica-id", f"scheduler-{number}"]
            args += spec.scheduler_args
            label = f"scheduler-{number}"
            scheduler = self._service(label, "scheduler_service", args)
            self.schedulers.append(scheduler)
            await scheduler.start()
        await asyncio.gather(*(s.wait_ready(START_SCHEDULER_S) for s in self.schedulers))
        await self.run(self._wait_all_serving())

    async def _wait_all_serving(self) -> None:
        try:
            async with asyncio.timeout(START_SCHEDULER_S):
                await asyncio.gather(*(wait_serving(endpoint) for endpoint in self.endpoints))
        except TimeoutError:
            tails = "; ".join(f"{s.label}: {s.log_tail()}" for s in self.schedulers)
            message = f"the scheduler found no worker within {START_SCHEDULER_S:.0f} s: {tails}"
            raise ServiceFailed(message) from None

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """What `work` returns. Raises ServiceFailed as soon as a child ends by itself."""
        working = asyncio.create_task(work)
        ends = {asyncio.create_task(process.wait()): process for process in self._processes()}
        try:
            done, _ = await asyncio.wait((working, *ends), return_when=asyncio.FIRST_COMPLETED)
            for end, process in ends.items():
                if end in done:
                    raise ServiceFailed(process.why_ended())
            return working.result()
        finally:
            for task in (working, *ends):
                task.cancel()
            await asyncio.gather(working, *ends, return_exceptions=True)

    async def supervise(self, report: Report) -> None:
        """Start what dies again, until cancelled. Raises ServiceFailed if it dies again and again."""
        async with asyncio.TaskGroup() as tasks:
            for process in self._processes():
                tasks.create_task(_keep_running(process, report))

    def _processes(self) -> list[Process]:
        store = [self.store] if self.store is not None else []
        return [*store, *self.workers, *self.schedulers]

    async def stop(self) -> None:
        """Schedulers first, so that workers are handed over and streams told."""
        await asyncio.gather(*(process.stop() for process in self.schedulers))
        await asyncio.gather(*(process.stop() for process in self.workers))


async def _keep_running(process: Process, report: Report) -> None:
    loop = asyncio.get_running_loop()
    num_deaths = 0
    while True:
        started_s = loop.time()
        await process.wait()
        num_deaths = num_deaths + 1 if loop.time() - started_s < STABLE_S else 1
        if num_deaths > MAX_DEATHS:
            raise ServiceFailed(f"{process.why_ended()} (again and again)")
        report(f"{process.why_ended()}; starting it again")
        await process.restart(START_WORKER_S)
        report(f"{process.label} is back")


@asynccontextmanager
async def local_stack(
    spec: StackSpec, report: Report = lambda _: None
) -> AsyncIterator[LocalStack]:
    """Start everything, and stop it whatever happens. Raises ServiceFailed, StoreRefused."""
    cleanup = AsyncExitStack()
    try:
        yield await _start(spec, report, cleanup)
    finally:
        await undisturbed(cleanup.aclose())


async def _start(spec: StackSpec, report: Report, cleanup: AsyncExitStack) -> LocalStack:
    run_dir = spec.log_dir
    if run_dir is None:
        temporary = tempfile.TemporaryDirectory(prefix="tokentide-run-", ignore_cleanup_errors=True)
        run_dir = Path(cleanup.enter_context(temporary))
    run_dir.mkdir(parents=True, exist_ok=True)
    stack = LocalStack(spec, run_dir, spec.redis_url)
    if not spec.redis_url:
        stack.store = await undisturbed(_start_store(spec, run_dir, report, cleanup))
        stack.redis_url = stack.store.url
    cleanup.push_async_callback(stack.stop)
    report(f"starting {spec.num_workers} worker(s) on {_computes(spec)}")
    await stack.start_workers()
    report(f"starting {spec.num_schedulers} scheduler(s)")
    await stack.start_schedulers()
    for process in (*stack.workers, *stack.schedulers):
        ports = ", ".join(
            f"{name.replace('_', ' ')} {port}"
            for name, port in process.ports.items()
            if "port" in name
        )
        report(f"{process.label}: process {process.pid}, {spec.host} {ports}")
    return stack


def _computes(spec: StackSpec) -> str:
    """What the workers run."""
    if "--simulate" not in spec.worker_args:
        return str(spec.model_dir)
    return f"simulated {spec.worker_args[spec.worker_args.index('--simulate') + 1]}"


async def wait_serving(endpoint: str) -> None:
    """Until the scheduler there has found a worker and can take requests."""
    async with grpc.aio.insecure_channel(endpoint) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                call = health.Watch(health_pb2.HealthCheckRequest(), wait_for_ready=True)
                async for reply in call:
                    if reply.status == health_pb2.HealthCheckResponse.SERVING:
                        call.cancel()
                        return


async def _start_store(
    spec: StackSpec, run_dir: Path, report: Report, cleanup: AsyncExitStack
) -> StoreProcess:
    data_dir = spec.data_dir or run_dir / "store"
    report(f"starting the embedded store, data in {data_dir}")
    store = await StoreProcess.start(data_dir, spec.appendfsync)
    cleanup.push_async_callback(store.stop)
    report(f"store: process {store.pid}, {store.server}")
    return store
