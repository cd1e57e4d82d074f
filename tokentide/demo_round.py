"""One round of the demo: all prompts at once, and who looks on as steps and chunks come in."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tokentide.client import Chunk, Client
from tokentide.commands.operations_client import OperationsClient
from tokentide.commands.readings import Step
from tokentide.demo_prompts import DemoPrompt
from tokentide.errors import TokentideError
from tokentide.local_stack import LocalStack

RECONNECT_S = 0.2


@dataclass(slots=True)
class Talk:
    """One prompt and its answer so far. The prompt's name is the id of the request."""

    prompt: DemoPrompt
    num_prompt_tokens: int = 0
    submitted_s: float = 0.0
    arrivals_s: list[float] = field(default_factory=list)  # of each chunk that carried tokens
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    end: str = ""

    def take(self, chunk: Chunk, now_s: float) -> None:
        self.num_prompt_tokens = chunk.num_prompt_tokens or self.num_prompt_tokens
        self.text += chunk.text
        if chunk.token_ids:
            self.token_ids += chunk.token_ids
            self.arrivals_s.append(now_s)
        if chunk.finish is not None:
            self.end = chunk.finish.reason.value.replace("_", " ")

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def ttft_s(self) -> float | None:
        """Time to first token."""
        return self.arrivals_s[0] - self.submitted_s if self.arrivals_s else None

    @property
    def gaps_s(self) -> list[float]:
        pairs = zip(self.arrivals_s, self.arrivals_s[1:], strict=False)
        return [after - before for before, after in pairs]


class Onlooker(Protocol):
    def on_step(self, scheduler: str, step: Step) -> None:
        """`scheduler`: the label of the one that drove it."""

    def on_chunk(self, talk: Talk) -> None: ...


async def converse(
    stack: LocalStack, client: Client, talks: Sequence[Talk], onlookers: Sequence[Onlooker]
) -> float:
    """Sends all prompts at once. How many seconds it took until the last answer had ended."""
    loop = asyncio.get_running_loop()
    names = frozenset(talk.prompt.name for talk in talks)
    watching = [
        asyncio.create_task(_watch(scheduler.label, endpoint, names, onlookers))
        for scheduler, endpoint in zip(stack.schedulers, stack.operations_endpoints, strict=True)
    ]
    started_s = loop.time()
    talking = [asyncio.create_task(_talk(client, talk, onlookers)) for talk in talks]
    try:
        await asyncio.gather(*talking)
        return loop.time() - started_s
    finally:
        for task in (*watching, *talking):
            task.cancel()
        await asyncio.gather(*watching, *talking, return_exceptions=True)


async def _talk(client: Client, talk: Talk, onlookers: Sequence[Onlooker]) -> None:
    loop = asyncio.get_running_loop()
    talk.submitted_s = loop.time()
    prompt = talk.prompt
    async for chunk in client.generate(
        [("user", prompt.text)],
        request_id=prompt.name,
        max_tokens=prompt.max_tokens,
        temperature=0,
    ):
        talk.take(chunk, loop.time())
        for onlooker in onlookers:
            onlooker.on_chunk(talk)


async def _watch(
    scheduler: str, endpoint: str, names: frozenset[str], onlookers: Sequence[Onlooker]
) -> None:
    """This round's steps of one replica, whenever it is there.

    From its ring of recent steps, so that none is missed; a replica that comes back has an empty one.
    """
    while True:
        # It may be killed, and started again.
        with contextlib.suppress(TokentideError):
            async with OperationsClient(endpoint) as operations:
                async for step in operations.watch_steps(replay_recent=True):
                    if any(each.request_id in names for each in step.scheduled):
                        for onlooker in onlookers:
                            onlooker.on_step(scheduler, step)
        await asyncio.sleep(RECONNECT_S)
