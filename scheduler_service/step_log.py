"""The last steps of the drivers here, kept in memory, and handed to whoever watches. Knows no grpc."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from scheduler_service.step_notes import StepNote

MAX_RECENT = 512
MAX_BEHIND = 256  # a watcher that falls further behind misses records


@dataclass(slots=True)
class _Watcher:
    queue: asyncio.Queue[StepNote] = field(default_factory=lambda: asyncio.Queue(MAX_BEHIND))
    num_missed: int = 0


class StepLog:
    def __init__(self) -> None:
        self._recent: deque[StepNote] = deque(maxlen=MAX_RECENT)
        self._watchers: list[_Watcher] = []

    def record(self, note: StepNote) -> None:
        self._recent.append(note)
        for watcher in self._watchers:
            if watcher.queue.full():
                watcher.num_missed += 1
            else:
                watcher.queue.put_nowait(note)

    async def watch(self, *, replay_recent: bool) -> AsyncIterator[tuple[StepNote, int]]:
        """Each record, and how many of those before it this watcher was too slow for."""
        watcher = _Watcher()
        recent = tuple(self._recent) if replay_recent else ()
        self._watchers.append(watcher)
        try:
            for note in recent:
                yield note, 0
            while True:
                yield await watcher.queue.get(), watcher.num_missed
        finally:
            self._watchers.remove(watcher)
