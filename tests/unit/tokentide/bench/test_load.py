"""Open and closed loops against a client that answers at once."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from shared.types import FinishReason
from tokentide.bench.load import Sampling, run_closed_loop, run_open_loop
from tokentide.bench.workload import WorkRequest
from tokentide.errors import TokentideError
from tokentide.resume import Chunk, Finish


class EchoClient:
    """Two chunks a request. Counts how many are under way at once."""

    def __init__(self) -> None:
        self.prompts: list[Any] = []
        self.num_now = self.num_most = 0

    async def generate(self, prompt: Any, **options: Any) -> AsyncIterator[Chunk]:
        if prompt == "bad":
            raise TokentideError("INVALID_ARGUMENT", "bad")
        self.prompts.append(prompt)
        self.num_now += 1
        self.num_most = max(self.num_most, self.num_now)
        name = options["request_id"]
        yield Chunk(request_id=name, start_index=0, seed=1, num_prompt_tokens=4)
        await asyncio.sleep(0)
        yield Chunk(request_id=name, start_index=0, token_ids=(5, 6))
        self.num_now -= 1
        yield Chunk(
            request_id=name,
            start_index=2,
            token_ids=(7,),
            finish=Finish(reason=FinishReason.LENGTH),
        )


def make_requests(count: int) -> list[WorkRequest]:
    return [
        WorkRequest(prompt=(number, number + 1), max_tokens=3, arrival_s=number * 1e-6)
        for number in range(count)
    ]


async def test_a_closed_loop_keeps_so_many_under_way_and_sends_all_in_order() -> None:
    client = EchoClient()

    observations = await run_closed_loop(client, make_requests(9), 3, Sampling())

    assert client.num_most == 3
    assert client.prompts == [[number, number + 1] for number in range(9)]
    assert all(o.token_ids == [5, 6, 7] and o.num_prompt_tokens == 4 for o in observations)
    assert [size for _, size in observations[0].arrivals] == [2, 1]


async def test_an_open_loop_sends_all_whatever_is_under_way() -> None:
    client = EchoClient()
    ended: list[str] = []

    observations = await run_open_loop(
        client, make_requests(5), Sampling(), lambda o: ended.append(o.request_id)
    )

    assert sorted(ended) == sorted(o.request_id for o in observations)
    assert all(o.sent_s >= o.due_s for o in observations)


async def test_an_error_is_a_status_and_the_load_goes_on() -> None:
    client = EchoClient()
    requests = [WorkRequest(prompt="bad", max_tokens=1), *make_requests(1)]

    observations = await run_closed_loop(client, requests, 1, Sampling())

    assert [o.status for o in observations] == ["INVALID_ARGUMENT", "OK"]
