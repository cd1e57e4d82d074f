"""A stream that brings nothing for a while is said to be waited for."""

import asyncio
from collections.abc import AsyncGenerator

from tokentide.commands.late import with_notice


async def test_a_late_item_is_announced_once_and_comes() -> None:
    go_on = asyncio.Event()
    notices: list[str] = []

    async def items() -> AsyncGenerator[int, None]:
        yield 1
        await go_on.wait()
        yield 2

    def notice() -> None:
        notices.append("late")
        go_on.set()

    assert [item async for item in with_notice(items(), notice, late_s=0.001)] == [1, 2]
    assert notices.count("late") >= 1


async def test_leaving_ends_the_stream_beneath() -> None:
    ended = asyncio.Event()

    async def items() -> AsyncGenerator[int, None]:
        try:
            await asyncio.Event().wait()
            yield 1
        finally:
            ended.set()

    noticed = asyncio.Event()
    reading = asyncio.ensure_future(anext(with_notice(items(), noticed.set, late_s=0.001)))
    await noticed.wait()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)

    assert ended.is_set()


async def test_an_error_passes() -> None:
    async def items() -> AsyncGenerator[int, None]:
        raise ValueError("broken")
        yield 1

    try:
        async for _ in with_notice(items(), lambda: None):
            pass
    except ValueError as error:
        assert str(error) == "broken"
    else:
        raise AssertionError("it is not passed on")
