"""Says so when a stream brings nothing for a while: a person would think it dead."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TypeVar

LATE_S = 5.0

Item = TypeVar("Item")


async def with_notice(
    items: AsyncGenerator[Item, None], notice: Callable[[], None], late_s: float = LATE_S
) -> AsyncGenerator[Item, None]:
    """The same items. `notice` is called once for each wait that lasts longer."""
    async with aclosing(items):
        while True:
            coming = asyncio.ensure_future(anext(items))
            try:
                done, _ = await asyncio.wait((coming,), timeout=late_s)
                if not done:
                    notice()
                item = await coming
            except StopAsyncIteration:
                return
            finally:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)
            yield item
