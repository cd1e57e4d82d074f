"""The client's loop: each index once, from stream to stream, whatever they repeat or lose."""

import asyncio
import random

import pytest
from virtual_clock import VirtualClockLoop

from shared.types import FinishReason
from tokentide.resume import Chunk, Finish, OutputDiffers, RetrySettings, StreamBroken, resuming

IDS = tuple(range(100, 140))


class Script:
    """Streams that break as told: each entry says how many chunks a stream gives before it breaks."""

    def __init__(self, breaks, rng, overlap=0):
        self.breaks = list(breaks)
        self.rng = rng
        self.overlap = overlap
        self.opened = []
        self.num_moves = 0

    def next_replica(self):
        self.num_moves += 1

    def generate(self):
        self.opened.append(("generate", 0))
        return self._stream(0)

    def follow(self, request_id, start, prefix_hash):
        self.opened.append(("follow", start))
        return self._stream(max(0, start - self.overlap))

    async def _stream(self, start):
        left = self.breaks.pop(0) if self.breaks else None
        if left == 0:
            raise StreamBroken("not even an answer")
        yield Chunk(request_id="r", start_index=start, seed=1)
        at = start
        while at < len(IDS):
            if left is not None:
                left -= 1
                if left <= 0:
                    raise StreamBroken("broken")
            ids = IDS[at : at + self.rng.randint(1, 4)]
            at += len(ids)
            finish = Finish(reason=FinishReason.LENGTH) if at == len(IDS) else None
            yield Chunk(request_id="r", start_index=at - len(ids), token_ids=ids, finish=finish)


def read(streams, **options):
    async def body():
        chunks = resuming(
            streams,
            request_id=options.get("request_id"),
            settings=options.get("settings", RetrySettings()),
            jitter=lambda: 0.5,
        )
        return [chunk async for chunk in chunks]

    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        return runner.run(body())


def ids_of(chunks):
    return tuple(i for chunk in chunks for i in chunk.token_ids)


@pytest.mark.parametrize("seed", range(30))
def test_every_index_comes_once_whatever_breaks(seed):
    rng = random.Random(seed)
    breaks = [rng.randint(0, 6) for _ in range(rng.randint(0, 8))]

    chunks = read(Script(breaks, rng, overlap=rng.randint(0, 3)))

    assert ids_of(chunks) == IDS
    assert next(c.start_index for c in chunks if c.token_ids) == 0
    assert chunks[-1].finish is not None


def test_until_it_is_accepted_the_request_is_submitted_again():
    streams = Script([0, 0, 3], random.Random(1))

    chunks = read(streams)

    assert [kind for kind, _ in streams.opened[:4]] == ["generate"] * 3 + ["follow"]
    assert ids_of(chunks) == IDS


def test_a_gap_is_an_error():
    class Gap(Script):
        async def _stream(self, start):
            yield Chunk(request_id="r", start_index=0, seed=1)
            yield Chunk(request_id="r", start_index=2, token_ids=(1,))

    with pytest.raises(OutputDiffers):
        read(Gap([], random.Random(0)))


def test_it_gives_up_after_a_while_without_progress():
    streams = Script([0] * 1000, random.Random(0))

    with pytest.raises(StreamBroken):
        read(streams, settings=RetrySettings(first_answer_s=5))

    assert 5 < len(streams.opened) < 100


def test_a_replica_that_drains_is_left_at_once():
    class Draining(Script):
        async def _stream(self, start):
            yield Chunk(request_id="r", start_index=start, seed=1)
            if len(self.opened) == 1:
                yield Chunk(request_id="r", start_index=0, token_ids=IDS[:5])
                yield Chunk(request_id="r", start_index=5, must_move=True)
                raise StreamBroken("must not be read")
            yield Chunk(
                request_id="r",
                start_index=5,
                token_ids=IDS[5:],
                finish=Finish(reason=FinishReason.LENGTH),
            )

    streams = Draining([], random.Random(0))

    assert ids_of(read(streams)) == IDS
    assert streams.opened == [("generate", 0), ("follow", 5)]


def test_a_beat_is_heard_and_not_handed_on():
    class Beating(Script):
        async def _stream(self, start):
            yield Chunk(request_id="r", start_index=0, seed=1)
            yield Chunk(request_id="r", start_index=0)
            yield Chunk(request_id="r", start_index=0, token_ids=IDS, finish=None)
            yield Chunk(request_id="r", start_index=len(IDS))
            yield Chunk(
                request_id="r", start_index=len(IDS), finish=Finish(reason=FinishReason.LENGTH)
            )

    async def body():
        chunks = resuming(
            Beating([], random.Random(1)),
            request_id=None,
            settings=RetrySettings(),
            jitter=lambda: 0.5,
        )
        return [chunk async for chunk in chunks]

    chunks = asyncio.run(body())

    assert [bool(chunk.token_ids) for chunk in chunks] == [False, True, False]
    assert chunks[-1].finish is not None
