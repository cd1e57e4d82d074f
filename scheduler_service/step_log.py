"""The last steps of the drivers here, kept in memory, and handed to whoever watches. Knows no grpc."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from scheduler_service.step_notes import StepNote

MAX_RECENT = 512
MAX_BEHIND = 256  # a watcher that falls further behind misses records


class StepLog:
    def __init__(self) -> None:
        self._recent: deque[StepNote] = deque(maxlen=MAX_RECENT)
        self._watchers: set[asyncio.Queue[StepNote]] = set()

    def record(self, note: StepNote) -> None:
        self._recent.append(note)
        for queue in self._watchers:
            if not queue.full():
                queue.put_nowait(note)

    async def watch(self, *, replay_recent: bool) -> AsyncIterator[StepNote]:
        queue: asyncio.Queue[StepNote] = asyncio.Queue(MAX_BEHIND)
        recent = tuple(self._recent) if replay_recent else ()
        self._watchers.add(queue)
        try:
            for note in recent:
                yield note
            while True:
                yield await queue.get()
        finally:
            self._watchers.discard(queue)
