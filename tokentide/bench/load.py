"""Sends a workload to the service and keeps what came back, and when. Judges nothing.

Open loop: each request leaves at its arrival time, whatever the service does. Closed loop: so many are
under way at once; the next leaves when one ends.
"""

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol

from tokentide.bench.workload import WorkRequest
from tokentide.errors import TokentideError
from tokentide.resume import Chunk, OutputDiffers, StreamBroken

OK = "OK"


class Generates(Protocol):
    """A `tokentide.Client`, as far as a load needs it."""

    def generate(self, prompt: Any, **options: Any) -> AsyncIterator[Chunk]: ...


@dataclass(slots=True, kw_only=True)
class Observation:
    """One request as its client saw it. Times are of the loop's clock, in seconds."""

    request_id: str
    due_s: float  # when it should leave: its arrival; closed loop: when it left
    sent_s: float = 0.0
    ended_s: float = 0.0
    status: str = OK
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    arrivals: list[tuple[float, int]] = field(default_factory=list)  # (when, tokens in the chunk)
    token_ids: list[int] = field(default_factory=list)

    @property
    def first_token_s(self) -> float | None:
        return self.arrivals[0][0] if self.arrivals else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    temperature: float = 0.0
    seed: int = 0
    cache_salt: str = ""  # requests with another one share no prefix cache


Tell = Callable[[Observation], None]


def _tell_nobody(_: Observation) -> None:
    return None


async def run_closed_loop(
    client: Generates,
    requests: Sequence[WorkRequest],
    concurrency: int,
    sampling: Sampling,
    ended: Tell = _tell_nobody,
) -> list[Observation]:
    waiting = deque(requests)
    observations: list[Observation] = []
    loop = asyncio.get_running_loop()

    async def send_in_turn() -> None:
        while waiting:
            observation = _new(loop.time())
            observations.append(observation)
            await send(client, waiting.popleft(), observation, sampling)
            ended(observation)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(concurrency, len(requests))):
            tasks.create_task(send_in_turn())
    return observations


async def run_open_loop(
    client: Generates,
    requests: Sequence[WorkRequest],
    sampling: Sampling,
    ended: Tell = _tell_nobody,
) -> list[Observation]:
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    observations = [_new(started_s + request.arrival_s) for request in requests]

    async def send_when_due(request: WorkRequest, observation: Observation) -> None:
        await asyncio.sleep(observation.due_s - loop.time())
        await send(client, request, observation, sampling)
        ended(observation)

    async with asyncio.TaskGroup() as tasks:
        for request, observation in zip(requests, observations, strict=True):
            tasks.create_task(send_when_due(request, observation))
    return observations


async def send(
    client: Generates, request: WorkRequest, observation: Observation, sampling: Sampling
) -> None:
    """Fills the observation. An error of the service is a status in it, not an exception."""
    loop = asyncio.get_running_loop()
    observation.sent_s = loop.time()
    chunks: Any = client.generate(
        request.prompt if isinstance(request.prompt, str) else list(request.prompt),
        request_id=observation.request_id,
        max_tokens=request.max_tokens,
        ignore_eos=request.ignore_eos,
        temperature=sampling.temperature,
        seed=sampling.seed,
        cache_salt=sampling.cache_salt,
    )
    try:
        async with aclosing(chunks):
            async for chunk in chunks:
                _take(observation, chunk, loop.time())
    except TokentideError as error:
        observation.status = error.code
    except (StreamBroken, OutputDiffers) as error:
        observation.status = type(error).__name__
    observation.ended_s = loop.time()


def _take(observation: Observation, chunk: Chunk, now_s: float) -> None:
    if chunk.token_ids:
        observation.arrivals.append((now_s, len(chunk.token_ids)))
        observation.token_ids += chunk.token_ids
    if chunk.num_prompt_tokens:
        observation.num_prompt_tokens = chunk.num_prompt_tokens
    if chunk.finish is not None:
        observation.num_cached_tokens = chunk.finish.usage.num_cached_tokens


def _new(due_s: float) -> Observation:
    return Observation(request_id=uuid.uuid4().hex, due_s=due_s)
