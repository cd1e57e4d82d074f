import asyncio

import pytest

from tokentide.undisturbed import undisturbed


async def test_the_result_comes_through():
    async def work() -> int:
        return 5

    assert await undisturbed(work()) == 5


async def test_a_cancellation_waits_for_the_end_of_the_work():
    started, may_end = asyncio.Event(), asyncio.Event()
    ended: list[bool] = []

    async def work() -> None:
        started.set()
        await may_end.wait()
        ended.append(True)

    caller = asyncio.create_task(undisturbed(work()))
    await started.wait()
    caller.cancel()
    await asyncio.sleep(0)
    assert not caller.done()
    may_end.set()

    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended == [True]


async def test_an_error_of_the_work_is_raised():
    async def work() -> None:
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        await undisturbed(work())
