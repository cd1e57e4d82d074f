"""The transformers process, seen from the benchmark: started once, asked between our own loads."""

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from shared.errors import ServingError
from tokentide.bench.workload import WorkRequest

MAX_LINE_BYTES = 64 * 1024 * 1024


class BaselineFailed(ServingError):
    """The transformers process ended, or said something else than an answer."""


class TransformersBaseline:
    """`async with await TransformersBaseline.start(model_dir) as baseline:`

    It works only while `run` waits, so it never computes beside the service.
    """

    def __init__(self, process: asyncio.subprocess.Process, log: Any) -> None:
        self._process = process
        self._log = log
        self.facts: dict[str, Any] = {}

    @classmethod
    async def start(cls, model_dir: Path, dtype: str = "float32", device: str = "cpu") -> Self:
        log = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tokentide.bench.transformers_generate",
            *("--model", str(model_dir), "--dtype", dtype, "--device", device),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            limit=MAX_LINE_BYTES,
            # As the worker: spinning threads lose most of their time where a neighbour is busy.
            env={"OMP_WAIT_POLICY": "PASSIVE", **os.environ, "HF_HUB_OFFLINE": "1"},
        )
        baseline = cls(process, log)
        try:
            baseline.facts = await baseline._read()
        except BaseException:
            await baseline.stop()
            raise
        return baseline

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def run(self, requests: Sequence[WorkRequest]) -> dict[str, Any]:
        assert self._process.stdin is not None
        line = json.dumps([request.as_json() for request in requests])
        self._process.stdin.write(f"{line}\n".encode())
        with contextlib.suppress(ConnectionError):  # its last words say more: see _read
            await self._process.stdin.drain()
        return await self._read()

    async def stop(self) -> None:
        if self._process.returncode is None:
            self._process.kill()  # it holds nothing, and may be in the middle of a batch
        await self._process.wait()
        self._log.close()

    async def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            self._log.seek(0)
            words = self._log.read().decode(errors="replace").strip().splitlines()
            last = words[-1] if words else "no output"
            raise BaselineFailed(f"transformers generate failed: {last}") from None
        return answer
