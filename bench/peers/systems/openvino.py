"""openvino-genai: the folder converted with optimum-intel, the pipeline stepped in a runner."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from bench.peers.environments import (
    ensure_environment,
    peers_dir,
    python_of,
    run_or_unavailable,
)
from bench.peers.runner_client import open_runner
from bench.peers.system import THREADS, Launch, Opened, Report
from bench.peers.workloads import Workload
from tokentide.models import build_once

REQUIREMENTS = (
    "openvino==2026.4.1",
    "openvino-genai==2026.4.1.0",
    "optimum-intel==2.2.0",
    "torch==2.13.0",
)
CACHE_GIB = 4


class OpenVino:
    name = "openvino"
    differs = (
        "KV cache (default 8 bit) and inference (default bfloat16 where the processor has it) "
        "switched to float32, prefix cache (default off) switched on; in process, no network door"
    )
    default_step_tokens = 256
    swept_step_tokens = (128, 256, 512)
    is_quarter = False

    def __init__(self) -> None:
        self._ir_dir = Path()

    def prepare(self, model_dir: Path, report: Report) -> None:
        # PyPI's torchvision is built for CUDA's torch and fails beside the CPU's.
        ensure_environment(self.name, REQUIREMENTS, report, without=("torchvision",))
        cli = python_of(self.name).with_name("optimum-cli")
        command = [str(cli), "export", "openvino", "--model", str(model_dir)]
        command += ["--task", "text-generation-with-past", "--weight-format", "fp32"]

        def build(staging: Path) -> None:
            report("openvino: converting the model (half a minute, once)")
            run_or_unavailable(
                self.name,
                [*command, str(staging / "model")],
                peers_dir() / "openvino-export.log",
                {"HF_HUB_OFFLINE": "1"},
            )

        self._ir_dir = build_once(peers_dir() / "models" / "openvino-fp32", build, report)

    def launch(self, workload: Workload, step_tokens: int) -> Launch:
        return Launch(step_tokens)

    @contextlib.asynccontextmanager
    async def open(self, launch: Launch, log_dir: Path) -> AsyncIterator[Opened]:
        args = ["--model", str(self._ir_dir), "--threads", str(THREADS)]
        args += ["--step-tokens", str(launch.step_tokens), "--cache-gib", str(CACHE_GIB)]
        python = await asyncio.to_thread(python_of, self.name)
        log_path = log_dir / "openvino.log"
        async with open_runner(python, "openvino_runner.py", args, log_path=log_path) as opened:
            yield opened
