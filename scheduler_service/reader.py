"""One stream's place in a request's log: what is known of it, what its client has still to get, how it ended.

Knows nothing of the store, grpc or text.
"""

import asyncio
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from scheduler_service.planning.request import RequestStatus
from shared.types import FinishReason

LOST_S = 5.0  # a request that was there is gone when nobody has given it back for so long


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """How a request's log ended."""

    status: str
    finish: FinishReason | None
    visible_tokens: int = -1
    visible_chars: int = -1
    stop_match: str = ""
    error: str = ""


class Reader:
    """One stream's place in a log."""

    def __init__(self, request_id: str, start: int) -> None:
        self.request_id = request_id
        self.num_known = start  # ids taken from the log so far
        self.end: LogEnd | None = None
        self.num_cached_tokens = 0
        self.is_unknown = False  # the store has no such request (any more)
        self.must_move = False  # this replica is draining
        self.heard_s = 0.0
        self.sent_s = 0.0  # when its client was last sent anything
        self._must_beat = False  # its client is to hear that it is not forgotten
        self._ids: list[int] = []  # not yet handed on
        self._taken = array("I")  # all of the log that is known here
        self.must_recheck = False  # the store lost writes: what is known must be in its log again
        self._missing_since_s: float | None = None
        self._was_there = False
        self._news = asyncio.Event()

    async def wait_news(self) -> list[int]:
        """New ids; empty when the log has ended, or a beat is due. Waits until there is any of it."""
        while not (self._ids or self.end or self.is_unknown or self.must_move or self._must_beat):
            self._news.clear()
            await self._news.wait()
        ids, self._ids = self._ids, []
        return ids

    def put_back(self, ids: list[int]) -> None:
        """Ids that `wait_news` gave and that are still to be read."""
        self._ids[:0] = ids

    def take(self, index: int, ids: Sequence[int]) -> bool:
        """Append what is new of ids that begin at `index`. False: there is a gap before them."""
        if index > self.num_known:
            return False
        known = self._taken[index : index + len(ids)]
        if list(ids[: len(known)]) != list(known):
            self.finish(LogEnd(status=RequestStatus.DATA_LOSS, finish=None))
            return True
        fresh = ids[self.num_known - index :]
        self._taken.extend(fresh)
        self._ids.extend(fresh)
        self.num_known += len(fresh)
        if fresh:
            self._news.set()
        return True

    def beat(self) -> None:
        self._must_beat = True
        self._news.set()

    def take_beat(self) -> bool:
        """Whether a beat was due."""
        is_due, self._must_beat = self._must_beat, False
        return is_due

    def finish(self, end: LogEnd) -> None:
        self.end = self.end or end
        self._news.set()

    def move(self) -> None:
        self.must_move = True
        self._news.set()

    def lose(self, now_s: float) -> None:
        """There is no such request; one that was there may be given back by whoever runs it."""
        if self._missing_since_s is None:
            self._missing_since_s = now_s
        if not self._was_there or now_s - self._missing_since_s >= LOST_S:
            self.is_unknown = True
            self._news.set()

    def find(self) -> None:
        self._was_there, self._missing_since_s = True, None
