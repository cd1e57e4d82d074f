"""The streams of a chaos run: what each client asked, what came and when, and whether that was right."""

import asyncio
import itertools
from dataclasses import dataclass, field

from tokentide import Client
from tokentide.errors import TokentideError

TERMINAL = ("finished", "cancelled", "expired", "failed", "quarantined", "data_loss")
LEAVES_AFTER = 20  # tokens that a reader takes who then goes away


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: half of them greedy, half drawn with a seed."""

    number: int
    max_tokens: int

    @property
    def prompt(self) -> str:
        return f"Tell me of the sea, part {self.number}. " * (1 + self.number % 5)

    @property
    def options(self) -> dict[str, float | int | bool]:
        drawn = {"temperature": 0.8, "top_p": 0.95} if self.number % 2 else {"temperature": 0.0}
        return {"seed": self.number, "max_tokens": self.max_tokens, "ignore_eos": True, **drawn}

    @property
    def is_slow(self) -> bool:
        return self.number % 12 == 5

    @property
    def leaves(self) -> bool:
        return self.number % 12 == 7


@dataclass(slots=True)
class Received:
    ask: Ask
    request_id: str
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    arrivals_s: list[float] = field(default_factory=list)  # of each chunk that had tokens
    ended: str = ""  # a finish reason, or an error

    def pause_after(self, at_s: float) -> float | None:
        """How long after `at_s` the next tokens came; None: the stream did not run then."""
        before = any(t <= at_s for t in self.arrivals_s)
        after = next((t for t in self.arrivals_s if t > at_s), None)
        return after - at_s if before and after is not None else None


async def read(
    client: Client,
    ask: Ask,
    request_id: str,
    *,
    is_calm: bool = False,
    into: Received | None = None,
) -> Received:
    """To the end, or until its reader leaves. An index out of order ends it with an error.

    `is_calm`: nobody is slow or leaves. `into`: filled while it is read.
    """
    loop = asyncio.get_running_loop()
    received = into or Received(ask, request_id)
    chunks = client.generate(ask.prompt, request_id=request_id, **ask.options)
    try:
        async for chunk in chunks:
            received.text += chunk.text  # the last of it may come with the end, without ids
            if chunk.token_ids:
                if chunk.start_index != len(received.token_ids):
                    received.ended = f"{chunk.start_index} after {len(received.token_ids)}"
                    break
                received.token_ids += chunk.token_ids
                received.arrivals_s.append(loop.time())
            if chunk.finish is not None:
                received.ended = str(chunk.finish.reason)
            if ask.leaves and not is_calm and len(received.token_ids) >= LEAVES_AFTER:
                received.ended = "left"
                break
            if ask.is_slow and not is_calm:
                await asyncio.sleep(0.05)
    except (TokentideError, TimeoutError) as error:
        received.ended = repr(error)
    finally:
        await chunks.aclose()
    return received


async def wrong_with(client: Client, received: Received, expected: list[int]) -> list[str]:
    """What the auditor has against one stream: it, the log, and the undisturbed run must agree."""
    name, ids = received.request_id, received.token_ids
    state = await client.get(name)
    wrong: list[str] = []
    if received.ended == "left":
        if state.status not in TERMINAL:
            wrong.append(f"{name}: its reader left, and it is {state.status}")
        expected = expected[: len(ids)]
    elif received.ended != "length":
        wrong.append(f"{name}: ended by {received.ended}, its record says {state.status}")
    if ids != expected:
        same = _num_same(ids, expected)
        wrong.append(
            f"{name}: {len(ids)} tokens of {len(expected)}, the first {same} as undisturbed"
        )
    if list(state.token_ids)[: len(ids)] != ids:
        wrong.append(f"{name}: the log is not what was delivered")
    if received.ended == "length" and state.text != received.text:
        wrong.append(f"{name}: the text is not the log's")
    return wrong


def _num_same(some: list[int], others: list[int]) -> int:
    pairs = zip(some, others, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
