"""Tokentide through its real gRPC door: client, scheduler, store, worker, each its own process."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from bench.peers.system import THREADS, Launch, Opened, Report
from bench.peers.workloads import Workload
from tokentide.bench.target import TargetSpec, open_target


class Ours:
    name = "ours"
    differs = "asked over gRPC, every token on disk before it is sent"
    default_step_tokens = 512
    swept_step_tokens = (128, 256, 512)
    is_quarter = False

    def __init__(self) -> None:
        self._model_dir = Path()

    def prepare(self, model_dir: Path, report: Report) -> None:
        self._model_dir = model_dir

    def launch(self, workload: Workload, step_tokens: int) -> Launch:
        return Launch(step_tokens)

    @contextlib.asynccontextmanager
    async def open(self, launch: Launch, log_dir: Path) -> AsyncIterator[Opened]:
        spec = TargetSpec(
            model_dir=self._model_dir,
            worker_args=(
                *("--dtype", "float32", "--device", "cpu", "--threads", str(THREADS)),
                *("--kv-memory", "4GiB"),
            ),
            scheduler_args=("--token-budget", str(launch.step_tokens)),
        )
        async with open_target(spec, lambda _: None) as target:
            yield Opened(client=target.client, facts={"model": target.model})
