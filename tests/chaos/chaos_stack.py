"""Three schedulers, two workers and a store as real processes, each of which can be ended, stopped and made to die at a
named point; what died comes back on its ports."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
from crashing import Armed, armed_file
from steady_profile import MAX_MODEL_TOKENS, write_steady_profile

from shared.pb import worker_pb2, worker_pb2_grpc
from tokentide.local_stack import LocalStack, StackSpec, local_stack, wait_serving
from tokentide.processes import ServiceProcess
from tokentide.store_process import StoreProcess

CRASHING = (sys.executable, "-P", str(Path(__file__).with_name("crashing.py")))
NUM_SCHEDULERS, NUM_WORKERS = 3, 2
RESTART_S = 60.0
SERVE_S = 5.0
DYING_S = 0.05  # until the system has said that a killed child is dead


class ChaosStack:
    def __init__(self, stack: LocalStack) -> None:
        self.stack = stack
        self.armed = {p: Armed(armed_file(p.announce_path)) for p in self.services}

    @property
    def services(self) -> list[ServiceProcess]:
        return [*self.stack.schedulers, *self.stack.workers]

    @property
    def store(self) -> StoreProcess:
        assert self.stack.store is not None, "the store is ours"
        return self.stack.store

    async def stats_of(self, worker: ServiceProcess) -> worker_pb2.WorkerStats | None:
        """As the worker says; None if it does not answer."""
        address = f"{self.stack.spec.host}:{worker.ports['port']}"
        async with grpc.aio.insecure_channel(address) as channel:
            watch = worker_pb2_grpc.WorkerStub(channel).WatchStats(
                worker_pb2.WatchStatsRequest(interval_ms=50)
            )
            with contextlib.suppress(grpc.aio.AioRpcError):
                async for stats in watch:
                    watch.cancel()
                    return stats
        return None

    async def driver_of(self, worker: ServiceProcess) -> ServiceProcess | None:
        """The scheduler that drives it."""
        stats = await self.stats_of(worker)
        found = [s for s in self.stack.schedulers if stats and s.label == stats.driver]
        return found[0] if found else None

    async def busiest_worker(self) -> ServiceProcess:
        workers = self.stack.workers
        stats = await asyncio.gather(*map(self.stats_of, workers))
        loads = [one.num_sequences if one is not None else 0 for one in stats]
        return workers[loads.index(max(loads))]

    async def wait_whole(self) -> None:
        """Until all live, each scheduler serves and each worker is driven."""
        await self.restart_dead()
        while not await self._all_serve():
            await self.restart_dead()  # one was still dying
        for worker in self.stack.workers:
            while await self.driver_of(worker) is None:
                await self.restart_dead()  # one was still dying

    async def _all_serve(self) -> bool:
        try:
            async with asyncio.timeout(SERVE_S):
                await asyncio.gather(*(wait_serving(endpoint) for endpoint in self.stack.endpoints))
        except TimeoutError:
            return False
        return True

    async def restart_dead(self) -> float | None:
        """When the store came back, by the loop's clock, if it was one of them."""
        await asyncio.sleep(DYING_S)
        store_back_s = None
        if self.store.exit_status is not None:
            await self.store.restart(RESTART_S)
            store_back_s = asyncio.get_running_loop().time()
        for service in self.services:
            service.signal(signal.SIGCONT)
            self.armed[service].clear()
        dead = [service for service in self.services if not service.is_running]
        await asyncio.gather(*(service.restart(RESTART_S) for service in dead))
        return store_back_s

    def kill(self, process: ServiceProcess | StoreProcess) -> None:
        process.signal(signal.SIGKILL)


@asynccontextmanager
async def chaos_stack(
    folder: Path,
    *,
    step_ms: float = 20.0,
    num_schedulers: int = NUM_SCHEDULERS,
    num_workers: int = NUM_WORKERS,
    scheduler_args: tuple[str, ...] = (),
) -> AsyncIterator[ChaosStack]:
    """On simulated workers."""
    tokenizer = folder / "tokenizer"
    tokenizer.mkdir(exist_ok=True)
    from worker_service.simulated.tokenizer_folder import write_tokenizer_folder

    write_tokenizer_folder(tokenizer, MAX_MODEL_TOKENS)
    profile = write_steady_profile(folder / "steady.json", step_ms)
    spec = StackSpec(
        model_dir=tokenizer,
        num_schedulers=num_schedulers,
        num_workers=num_workers,
        scheduler_args=scheduler_args,
        worker_args=("--simulate", str(profile), "--model-name", "chaos"),
        log_dir=folder / "logs",
        interpreter=CRASHING,
    )
    async with local_stack(spec) as stack:
        yield ChaosStack(stack)


@asynccontextmanager
async def real_stack(folder: Path, model_dir: Path) -> AsyncIterator[ChaosStack]:
    """On the real model, a thread for each worker."""
    spec = StackSpec(
        model_dir=model_dir,
        num_schedulers=NUM_SCHEDULERS,
        num_workers=NUM_WORKERS,
        worker_args=("--threads", "1", "--num-blocks", "512", "--model-name", "real"),
        log_dir=folder / "logs",
        interpreter=CRASHING,
    )
    async with local_stack(spec) as stack:
        yield ChaosStack(stack)
