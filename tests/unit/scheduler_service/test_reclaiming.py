"""When a worker counts as dead: a beat that stands still, sooner where nobody listens at its address."""

import asyncio

import pytest
from store_model import StoreModel
from virtual_clock import VirtualClockLoop

from scheduler_service.reclaiming import Reclaimer, ReclaimSettings
from scheduler_service.store.values import Fence

FENCE = Fence("worker", 1)


async def time_until_reclaimed(*, is_gone, beats_for_s=0.0, is_seen=False):
    """Seconds from the worker's last beat; None: not within ten."""
    loop = asyncio.get_running_loop()
    store = StoreModel(now_ms=lambda: int(loop.time() * 1e3), draw_nonce=lambda: 1)
    await store.attach_driver(FENCE, "replica", 1000)
    reclaimed = asyncio.Event()
    reclaimer = Reclaimer(
        store,
        ReclaimSettings(),
        seen_here=lambda: {"worker"} if is_seen else set(),
        reclaimed=reclaimed.set,
    )
    sweeping = asyncio.create_task(reclaimer.run())
    if is_gone:
        reclaimer.note_gone("worker")
    end_s = loop.time() + beats_for_s
    while loop.time() < end_s:
        await asyncio.sleep(0.5)
        await store.commit(FENCE, [])
    last_s = loop.time()
    try:
        async with asyncio.timeout(10):
            await reclaimed.wait()
    except TimeoutError:
        return None
    finally:
        sweeping.cancel()
    return loop.time() - last_s


def run(**given):
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        return runner.run(time_until_reclaimed(**given))


def test_a_still_beat_is_waited_for_two_seconds():
    assert run(is_gone=False) == pytest.approx(2.0, abs=0.6)


def test_where_nobody_listens_the_wait_is_short():
    assert run(is_gone=True) == pytest.approx(0.6, abs=0.1)


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_worker_that_another_replica_drives_is_left_alone(is_gone):
    assert run(is_gone=is_gone, beats_for_s=5.0) > 0.5


def test_a_worker_that_is_seen_here_is_left_alone():
    assert run(is_gone=True, is_seen=True) is None
