"""Committed tokens to streams: from drivers here, from the store otherwise, each once and in order."""

import asyncio
import itertools
import random

import pytest
from fakes_store import CAPACITY
from store_model import StoreModel
from virtual_clock import VirtualClockLoop

from scheduler_service.delivery import Delivery
from scheduler_service.reader import Reader
from scheduler_service.store.values import CommitRow, Fence, NewRequest, Watch
from shared.types import Assignment, FinishReason


def make_row(index, ids, finish=None, request_id="r", **changes):
    return CommitRow(
        request_id=request_id,
        assignment=changes.pop("assignment", Assignment(1, 1)),
        index=index,
        token_ids=tuple(ids),
        finish=finish,
        **changes,
    )


def test_a_reader_takes_overlapping_pieces_once():
    reader = Reader("r", 0)

    assert reader.take(0, [1, 2, 3])
    assert reader.take(1, [2, 3, 4])
    assert reader.take(0, [1])

    assert reader.num_known == 4
    assert asyncio.run(reader.wait_news()) == [1, 2, 3, 4]


def test_a_reader_refuses_a_gap():
    reader = Reader("r", 0)

    assert not reader.take(1, [2])
    assert reader.num_known == 0


def test_ids_put_back_are_read_first():
    reader = Reader("r", 0)
    reader.take(0, [1, 2])
    ids = asyncio.run(reader.wait_news())
    reader.take(2, [3])

    reader.put_back(ids[1:])

    assert asyncio.run(reader.wait_news()) == [2, 3]


@pytest.fixture
async def store():
    nonces = itertools.count(1)
    model = StoreModel(now_ms=lambda: 0, draw_nonce=lambda: next(nonces))
    await model.attach_driver(Fence("w", 1), "a", CAPACITY)
    return model


async def submit_and_claim(store, request_id="r", replica="a"):
    await store.submit(
        NewRequest(
            request_id=request_id,
            payload_hash=b"h",
            payload=b"p",
            num_prompt_tokens=1,
            max_tokens=100,
            watch=Watch(replica_id=replica, nonce="n", grace_ms=1000),
        )
    )
    claimed = await store.claim(Fence("w", 1), [request_id])
    return claimed.claimed[0].assignment


async def read_all(reader):
    ids = []
    while reader.end is None or reader._ids:
        ids += await reader.wait_news()
    return ids


@pytest.mark.parametrize("seed", range(5))
async def test_offers_doorbells_and_polls_together_deliver_each_token_once(store, seed):
    rng = random.Random(seed)
    assignment = await submit_and_claim(store)
    delivery = Delivery(store, "a", poll_s=0.01)
    running = asyncio.create_task(delivery.run())
    reader = delivery.open("r", 0)
    expected = [rng.randrange(1000) for _ in range(60)]

    async def commit():
        at = 0
        while at < len(expected):
            piece = expected[at : at + rng.randint(1, 5)]
            is_last = at + len(piece) >= len(expected)
            finish = FinishReason.LENGTH if is_last else None
            row = make_row(at, piece, finish, assignment=assignment)
            await store.commit(Fence("w", 1), [row])
            if rng.random() < 0.5:
                delivery.offer([row])
            await asyncio.sleep(0)
            at += len(piece)

    async with asyncio.timeout(10):
        ids, _ = await asyncio.gather(read_all(reader), commit())
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert ids == expected
    assert reader.end.status == "finished"


async def test_a_reader_of_an_unknown_request_learns_so(store):
    delivery = Delivery(store, "a", poll_s=0.01)
    running = asyncio.create_task(delivery.run())
    reader = delivery.open("nobody", 0)

    async with asyncio.timeout(10):
        await reader.wait_news()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert reader.is_unknown


async def test_a_closed_reader_leaves_nothing(store):
    delivery = Delivery(store, "a")
    reader = delivery.open("r", 0)

    delivery.close(reader)
    delivery.close(reader)

    assert delivery.num_streams == 0


async def test_streams_that_leave_while_many_are_read_do_no_harm(store, monkeypatch):
    """Over a batch's worth of streams: those of the second batch close while the first is read."""
    delivery = Delivery(store, "a", poll_s=1000)
    readers = [delivery.open(f"r{n}", 0) for n in range(600)]
    read_logs = store.read_logs

    async def close_the_rest(starts):
        for reader in readers[300:]:
            delivery.close(reader)
        return await read_logs(starts)

    monkeypatch.setattr(store, "read_logs", close_the_rest)
    running = asyncio.create_task(delivery._read_wanted())

    async with asyncio.timeout(10):
        await readers[0].wait_news()
        await readers[299].wait_news()
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_a_quiet_stream_beats_and_thousands_beat_less_often():
    async def body():
        store = StoreModel(now_ms=lambda: 0, draw_nonce=lambda: 1)
        delivery = Delivery(store, "replica")
        reader = delivery.open("r", 0)
        polling = asyncio.create_task(delivery._poll())
        started_s = asyncio.get_running_loop().time()
        times_s = []
        for _ in range(3):
            assert await reader.wait_news() == []
            assert reader.take_beat() and not reader.take_beat()
            times_s.append(asyncio.get_running_loop().time() - started_s)
        polling.cancel()
        promised_ms = delivery.next_within_ms
        for number in range(4000):
            delivery.open(f"r{number}", 0)
        return times_s, promised_ms, delivery.next_within_ms

    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        times_s, promised_ms, many_ms = runner.run(body())

    assert times_s == pytest.approx([0.5, 1.0, 1.5])
    assert (promised_ms, many_ms) == (1000, 4501)


async def test_a_stream_that_is_opened_while_all_move_is_told_so_too(store):
    delivery = Delivery(store, "a")
    early = delivery.open("r", 0)

    delivery.move_all()
    late = delivery.open("r", 0)

    assert early.must_move and late.must_move
    assert await late.wait_news() == []
