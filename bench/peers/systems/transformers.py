"""transformers, in the product's own environment, so that only the engine differs: static batches, and
its own continuous batching. A quarter of a workload, once.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from bench.peers.runner_client import open_runner
from bench.peers.system import THREADS, Launch, Opened, Report
from bench.peers.workloads import Workload
from tokentide.bench.baseline import TransformersBaseline
from tokentide.bench.workload import WorkRequest
from tokentide.resume import Chunk

BATCH_SIZE = 16

Waiting = tuple[WorkRequest, "asyncio.Future[list[int]]"]


class TransformersContinuous:
    name = "tf-cont"
    differs = "scaled-dot-product attention; in process, no network door"
    default_step_tokens = 512
    swept_step_tokens = ()
    is_quarter = True

    def __init__(self) -> None:
        self._model_dir = Path()

    def prepare(self, model_dir: Path, report: Report) -> None:
        self._model_dir = model_dir

    def launch(self, workload: Workload, step_tokens: int) -> Launch:
        return Launch(step_tokens)

    @contextlib.asynccontextmanager
    async def open(self, launch: Launch, log_dir: Path) -> AsyncIterator[Opened]:
        args = ["--model", str(self._model_dir), "--threads", str(THREADS)]
        args += ["--step-tokens", str(launch.step_tokens)]
        python, log_path = Path(sys.executable), log_dir / "transformers.log"
        async with open_runner(python, "transformers_runner.py", args, log_path=log_path) as opened:
            yield opened


class TransformersStatic:
    name = "tf-static"
    differs = f"static batches of up to {BATCH_SIZE}, left padding; outputs come when a batch ends"
    default_step_tokens = 0
    swept_step_tokens = ()
    is_quarter = True

    def __init__(self) -> None:
        self._model_dir = Path()

    def prepare(self, model_dir: Path, report: Report) -> None:
        self._model_dir = model_dir

    def launch(self, workload: Workload, step_tokens: int) -> Launch:
        return Launch(step_tokens)

    @contextlib.asynccontextmanager
    async def open(self, launch: Launch, log_dir: Path) -> AsyncIterator[Opened]:
        async with await TransformersBaseline.start(self._model_dir) as baseline:
            batches = StaticBatches(baseline)
            working = asyncio.create_task(batches.work())
            try:
                yield Opened(client=batches, facts=baseline.facts)
            finally:
                working.cancel()


class StaticBatches:
    """Whoever waits when a batch ends is in the next one."""

    def __init__(self, baseline: TransformersBaseline) -> None:
        self._baseline = baseline
        self._waiting: asyncio.Queue[Waiting] = asyncio.Queue()

    async def generate(self, prompt: Any, **options: Any) -> AsyncIterator[Chunk]:
        request = WorkRequest(prompt=tuple(prompt), max_tokens=options["max_tokens"])
        output: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._waiting.put_nowait((request, output))
        token_ids = tuple(await output)
        yield Chunk(request_id=options["request_id"], start_index=0, token_ids=token_ids)

    async def work(self) -> None:
        while True:
            batch = [await self._waiting.get()]
            await asyncio.sleep(0)  # those that came at the same moment
            while len(batch) < BATCH_SIZE and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            try:
                result = await self._baseline.run([request for request, _ in batch])
                for (_, output), token_ids in zip(batch, result["token_ids"], strict=True):
                    output.set_result(token_ids)
            except Exception as error:
                for _, output in batch:
                    output.set_exception(error)
