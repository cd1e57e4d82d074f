"""A peer's engine in its own environment, spoken to in JSON lines; see runners/lines.py.

Tokens are timed when they arrive here, as ours are.
"""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.peers.environments import last_error
from bench.peers.system import Opened
from shared.errors import ServingError
from tokentide.resume import Chunk

RUNNERS = Path(__file__).parent / "runners"
MAX_LINE_BYTES = 64 * 1024 * 1024
START_S = 900.0  # vLLM compiles for minutes, once
STOP_S = 20.0

Event = tuple[list[int], bool]  # new tokens, ended


class RunnerFailed(ServingError):
    """The runner ended by itself, or could not serve a request."""


class RunnerClient:
    """Generates over the runner's pipes."""

    def __init__(self, process: asyncio.subprocess.Process, log_path: Path) -> None:
        self._process = process
        self._log_path = log_path
        self._events: dict[str, asyncio.Queue[Event | str]] = {}

    async def generate(self, prompt: Any, **options: Any) -> AsyncIterator[Chunk]:
        request_id = options["request_id"]
        events: asyncio.Queue[Event | str] = asyncio.Queue()
        self._events[request_id] = events
        self._send({"add": request_id, "prompt": prompt, "max_tokens": options["max_tokens"]})
        has_ended, num_tokens = False, 0
        try:
            while not has_ended:
                event = await events.get()
                if isinstance(event, str):
                    raise RunnerFailed(event)
                tokens, has_ended = event
                yield Chunk(request_id=request_id, start_index=num_tokens, token_ids=tuple(tokens))
                num_tokens += len(tokens)
        finally:
            del self._events[request_id]
            if not has_ended:
                self._send({"cancel": request_id})

    async def read_facts(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        async with asyncio.timeout(START_S):
            line = await self._process.stdout.readline()
        if not line:
            raise RunnerFailed(self._why_ended())
        facts: dict[str, Any] = json.loads(line)["facts"]
        return facts

    async def pass_on(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            message = json.loads(line)
            for request_id, why in message.get("failed", {}).items():
                self._put(request_id, why)
            ended = set(message.get("ended", ()))
            tokens = message.get("tokens", {})
            for request_id in {*tokens, *ended}:
                self._put(request_id, (tokens.get(request_id, []), request_id in ended))
        why = self._why_ended()
        for events in self._events.values():
            events.put_nowait(why)

    def _put(self, request_id: str, event: Event | str) -> None:
        if request_id in self._events:  # else it was cancelled
            self._events[request_id].put_nowait(event)

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):  # pass_on says why it ended
            self._process.stdin.write(f"{json.dumps(message)}\n".encode())

    def _why_ended(self) -> str:
        return f"the runner ended: {last_error(self._log_path.read_text(errors='replace'))}"


@contextlib.asynccontextmanager
async def open_runner(
    python: Path,
    script: str,
    args: Sequence[str],
    *,
    log_path: Path,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Opened]:
    """Raises RunnerFailed, TimeoutError."""
    with log_path.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            str(python),
            str(RUNNERS / script),
            *args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            limit=MAX_LINE_BYTES,
            start_new_session=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1", **(environment or {})},
        )
    client = RunnerClient(process, log_path)
    reading: asyncio.Task[None] | None = None
    try:
        facts = await client.read_facts()
        reading = asyncio.create_task(client.pass_on())
        yield Opened(client=client, facts=facts)
    finally:
        if reading is not None:
            reading.cancel()
        await stop_group(process)


async def stop_group(process: asyncio.subprocess.Process) -> None:
    """SIGTERM, then SIGKILL; the group too, since engines start children."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(STOP_S):
            await process.wait()
    except TimeoutError:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
