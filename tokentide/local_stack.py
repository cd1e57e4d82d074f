"""A whole stack on one machine: embedded store (or a given one), workers, schedulers, as child processes."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tokentide.processes import ServiceProcess

START_WORKER_S = 300.0
START_SCHEDULER_S = 60.0

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSpec:
    model_dir: Path
    num_workers: int = 1
    num_schedulers: int = 1
    redis_url: str = ""  # empty: the embedded store
    data_dir: Path | None = None  # of the embedded store; None: a temporary one
    appendfsync: str = "always"
    host: str = "127.0.0.1"
    port: int = 0  # of the first scheduler; the others follow. 0 = any
    operations_port: int = 0
    worker_port: int = 0
    worker_args: tuple[str, ...] = ()
    scheduler_args: tuple[str, ...] = ()
    log_dir: Path | None = None  # None: a temporary one


@dataclass(slots=True)
class LocalStack:
    """What runs. `restart` brings one of its processes back on the same ports."""

    spec: StackSpec
    run_dir: Path
    redis_url: str
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
            worker = ServiceProcess(f"worker-{number}", self.run_dir, "worker_service", args)
            self.workers.append(worker)
            await worker.start()
        await asyncio.gather(*(worker.wait_ready(START_WORKER_S) for worker in self.workers))

    async def start_schedulers(self) -> None:
        spec = self.spec
        addresses = ",".join(f"{spec.host}:{w.ports['port']}" for w in self.workers)
        for number in range(spec.num_schedulers):
            port = spec.port + number if spec.port else 0
            operations_port = spec.operations_port + number if spec.operations_port else 0
            args = ["--host", spec.host, "--port", str(port)]
            args += ["--operations-host", spec.host, "--operations-port", str(operations_port)]
            args += ["--workers", addresses, "--replica-id", f"scheduler-{number}"]
            # The address holds the password: not for `ps` to show.
            secret = self.run_dir / "scheduler.toml"
            if not secret.exists():
                secret.touch(mode=0o600)
                secret.write_text(f'[scheduler]\nredis_url = "{self.redis_url}"\n')
            args += ["--config", str(secret), *spec.scheduler_args]
            label = f"scheduler-{number}"
            scheduler = ServiceProcess(label, self.run_dir, "scheduler_service", args)
            self.schedulers.append(scheduler)
            await scheduler.start()
        await asyncio.gather(*(s.wait_ready(START_SCHEDULER_S) for s in self.schedulers))

    async def stop(self) -> None:
        """Schedulers first, so that workers are handed over and streams told."""
        await asyncio.gather(*(process.stop() for process in self.schedulers))
        await asyncio.gather(*(process.stop() for process in self.workers))


@asynccontextmanager
async def local_stack(
    spec: StackSpec, report: Report = lambda _: None
) -> AsyncIterator[LocalStack]:
    """Start everything, and stop it whatever happens. Raises ServiceFailed, StoreRefused."""
    async with AsyncExitStack() as cleanup:
        if spec.log_dir is None:
            run_dir = Path(
                cleanup.enter_context(
                    tempfile.TemporaryDirectory(prefix="tokentide-run-", ignore_cleanup_errors=True)
                )
            )
        else:
            run_dir = spec.log_dir
            run_dir.mkdir(parents=True, exist_ok=True)
        redis_url = spec.redis_url
        if not redis_url:
            report("starting the embedded store")
            redis_url = await _start_store(spec, run_dir, cleanup)
        stack = LocalStack(spec, run_dir, redis_url)
        cleanup.push_async_callback(stack.stop)
        report(f"starting {spec.num_workers} worker(s): loading {spec.model_dir.name}")
        await stack.start_workers()
        report(f"starting {spec.num_schedulers} scheduler(s)")
        await stack.start_schedulers()
        yield stack


async def _start_store(spec: StackSpec, run_dir: Path, cleanup: AsyncExitStack) -> str:
    # Needs the store's client library, which a mere client of the service does not have.
    from scheduler_service.store.embedded import EmbeddedStore  # noqa: PLC0415

    data_dir = spec.data_dir or run_dir / "store"
    store = await asyncio.to_thread(EmbeddedStore.start, data_dir, appendfsync=spec.appendfsync)
    cleanup.push_async_callback(asyncio.to_thread, store.stop)
    return store.url
