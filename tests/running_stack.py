"""A real stack for tests: child processes, kept on an event loop in a thread of its own."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from tokentide.local_stack import LocalStack, StackSpec, local_stack


class RunningStack:
    def __init__(self, stack: LocalStack, loop: asyncio.AbstractEventLoop) -> None:
        self.stack = stack
        self._loop = loop

    @property
    def endpoints(self) -> list[str]:
        return self.stack.endpoints

    @property
    def operations_endpoints(self) -> list[str]:
        return self.stack.operations_endpoints

    @property
    def redis_url(self) -> str:
        return self.stack.redis_url

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """On the stack's own loop: for starting and stopping its processes."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(120)


@contextmanager
def running_stack(spec: StackSpec) -> Iterator[RunningStack]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    manager = local_stack(spec)
    try:
        stack = asyncio.run_coroutine_threadsafe(manager.__aenter__(), loop).result(300)
        try:
            yield RunningStack(stack, loop)
        finally:
            leave = manager.__aexit__(None, None, None)
            asyncio.run_coroutine_threadsafe(leave, loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
