"""Work that a cancellation must not interrupt: cleaning up, or starting what would else be left behind."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


async def undisturbed(work: Coroutine[Any, Any, Result]) -> Result:
    """Runs `work` to its end whatever happens. A cancellation of the caller is raised after it."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.exception()  # seen: the cancellation goes first
        raise cancelled
    return task.result()
