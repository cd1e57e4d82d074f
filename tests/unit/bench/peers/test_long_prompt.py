"""The long-prompt run against a client that gives tokens when told."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from bench.peers.long_prompt import run_long_prompt
from bench.peers.workloads import BY_NAME, requests_of
from tokentide.resume import Chunk


class FakeClient:
    """A token of each request in turn, as fast as the loop goes; counts what is cancelled."""

    def __init__(self) -> None:
        self.num_cancelled = 0

    async def generate(self, prompt: Any, **options: Any) -> AsyncIterator[Chunk]:
        try:
            for index in range(options["max_tokens"]):
                await asyncio.sleep(0)
                yield Chunk(
                    request_id=options["request_id"], start_index=index, token_ids=(len(prompt),)
                )
        except (asyncio.CancelledError, GeneratorExit):
            self.num_cancelled += 1
            raise


async def test_gap_and_first_token_are_found_and_the_decodes_are_cancelled() -> None:
    client = FakeClient()
    requests = requests_of(BY_NAME["long"], repeat=0, vocabulary=1000)

    result = await run_long_prompt(client, requests, 256)

    assert result["ttft_s"] > 0
    assert result["worst_gap_s"] > 0
    assert result["first_tokens"] == [4096]
    assert client.num_cancelled == 8
