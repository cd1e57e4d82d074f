"""Eight sequences decode; a long prompt arrives: their worst gap, and its time to first token."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

from bench.peers.workloads import NUM_BEFORE
from tokentide.bench.chunk_run import ChunkTimes, chunk_run
from tokentide.bench.load import Generates, Observation, Sampling, send
from tokentide.bench.workload import WorkRequest
from tokentide.resume import Chunk


class Counting:
    """Passes a client's chunks on, and lets one wait for a number of tokens of each request."""

    def __init__(self, client: Generates) -> None:
        self._client = client
        self._came = asyncio.Condition()
        self._counts: dict[str, int] = {}

    async def generate(self, prompt: Any, **options: Any) -> AsyncIterator[Chunk]:
        chunks: Any = self._client.generate(prompt, **options)
        async with aclosing(chunks):
            async for chunk in chunks:
                async with self._came:
                    count = self._counts.get(options["request_id"], 0)
                    self._counts[options["request_id"]] = count + len(chunk.token_ids)
                    self._came.notify_all()
                yield chunk

    async def wait_more(self, request_ids: Sequence[str], number: int) -> None:
        """Until each has `number` more tokens than now."""
        wanted = {name: self._counts.get(name, 0) + number for name in request_ids}
        async with self._came:
            await self._came.wait_for(
                lambda: all(self._counts.get(n, 0) >= count for n, count in wanted.items())
            )


async def run_long_prompt(
    client: Generates, requests: Sequence[WorkRequest], step_tokens: int
) -> dict[str, Any]:
    """The last request is the long one. Raises what a decode raises."""
    *decodes, long = requests
    counting = Counting(client)
    observations = [_observation() for _ in decodes]
    names = [observation.request_id for observation in observations]
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(send(counting, request, observation, Sampling()))
            for request, observation in zip(decodes, observations, strict=True)
        ]
        await counting.wait_more(names, 1)
        before_s = loop.time()
        await counting.wait_more(names, NUM_BEFORE)
        arrived = _observation()
        await send(counting, long, arrived, Sampling())
        await counting.wait_more(names, 1)  # the gaps that were open are over
        for task in tasks:
            task.cancel()
    assert arrived.first_token_s is not None, f"no first token: {arrived.status}"
    times = ChunkTimes(
        size=step_tokens,
        streams=[[at for at, _ in observation.arrivals] for observation in observations],
        before_s=before_s,
        sent_s=arrived.sent_s,
        first_token_s=arrived.first_token_s,
        num_prompt_tokens=len(long.prompt),
    )
    run = chunk_run(times)
    return {
        "worst_gap_s": run["gap_during_s"]["max"],
        "worst_gap_before_s": run["gap_before_s"]["max"],
        "ttft_s": run["ttft_s"],
        "first_tokens": arrived.token_ids[:1],
    }


def _observation() -> Observation:
    loop = asyncio.get_running_loop()
    return Observation(request_id=uuid.uuid4().hex, due_s=loop.time())
