"""Twenty clients outside the containers, each with its own request over and over: whatever happens, the same tokens."""

import asyncio
from dataclasses import dataclass, field

from tokentide import Client
from tokentide.errors import TokentideError

NUM_STREAMS = 20
STREAM_S = 180.0  # a stream that takes longer hangs


@dataclass(slots=True)
class Tally:
    """What the streams of one phase came to."""

    num_finished: int = 0
    failed: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    longest_pause_s: float = 0.0  # between two chunks of one stream


class Load:
    """`expected`: the tokens of each client's request, from a run that nobody disturbed."""

    def __init__(self, client: Client, name: str, num_tokens: int) -> None:
        self._client = client
        self._name = name
        self._num_tokens = num_tokens
        self._num_rounds = 0
        self.expected: dict[int, tuple[int, ...]] = {}

    async def run_calm(self) -> Tally:
        """Each request once; its tokens are what is expected from then on."""
        tally = Tally()
        prefix = self._next_prefix()
        outputs = await asyncio.gather(
            *(self._read(n, f"{prefix}-{n}", tally) for n in range(NUM_STREAMS))
        )
        self.expected = dict(enumerate(outputs))
        return tally

    async def run_while(self, stop: asyncio.Event) -> Tally:
        """Round after round until `stop`; the streams that are open then end by themselves."""
        tally = Tally()
        prefix = self._next_prefix()
        await asyncio.gather(
            *(self._repeat(n, f"{prefix}-{n}", tally, stop) for n in range(NUM_STREAMS))
        )
        return tally

    async def _repeat(self, number: int, prefix: str, tally: Tally, stop: asyncio.Event) -> None:
        turn = 0
        while not stop.is_set():
            request_id = f"{prefix}-{turn}"
            ids = await self._read(number, request_id, tally)
            if ids != self.expected[number]:
                tally.changed.append(f"{request_id}: {_difference(ids, self.expected[number])}")
            turn += 1

    async def _read(self, number: int, request_id: str, tally: Tally) -> tuple[int, ...]:
        loop = asyncio.get_running_loop()
        ids: list[int] = []
        chunks = self._client.generate(
            f"Tell me of the sea, part {number}. " * (1 + number % 4),
            request_id=request_id,
            seed=number,
            temperature=0.8 if number % 2 else 0.0,
            max_tokens=self._num_tokens,
            ignore_eos=True,
        )
        heard_s: float | None = None  # waiting for the first answer is no pause
        try:
            async with asyncio.timeout(STREAM_S):
                async for chunk in chunks:
                    if heard_s is not None:
                        tally.longest_pause_s = max(tally.longest_pause_s, loop.time() - heard_s)
                    heard_s = loop.time()
                    if chunk.token_ids and chunk.start_index != len(ids):
                        tally.changed.append(f"{request_id}: {chunk.start_index} after {len(ids)}")
                    ids.extend(chunk.token_ids)
            tally.num_finished += 1
        except (TokentideError, TimeoutError) as error:
            tally.failed.append(f"{request_id}: {error!r}")
        return tuple(ids)

    def _next_prefix(self) -> str:
        self._num_rounds += 1
        return f"{self._name}-{self._num_rounds}"


def _difference(ids: tuple[int, ...], expected: tuple[int, ...]) -> str:
    same = next((n for n, (a, b) in enumerate(zip(ids, expected, strict=False)) if a != b), None)
    return f"{len(ids)} tokens of {len(expected)}" if same is None else f"differs at {same}"
