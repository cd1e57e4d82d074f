"""Committed tokens to the streams of this replica: from drivers here at once, from the store otherwise.

Truth is the log: what a driver offers is only a shorter way to the same ids, doorbells are hints, and a
slow poll covers both. Knows nothing of grpc, text or Redis.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from scheduler_service.planning.request import TERMINAL, RequestStatus
from scheduler_service.reader import LogEnd, Reader
from scheduler_service.store.interface import RequestStore
from scheduler_service.store.values import CommitRow, LogSlice
from shared.errors import StoreUnavailable
from shared.types import FinishReason

STATUS_AFTER = {
    FinishReason.STOP_TOKEN: RequestStatus.FINISHED,
    FinishReason.STOP_STRING: RequestStatus.FINISHED,
    FinishReason.LENGTH: RequestStatus.FINISHED,
    FinishReason.CANCELLED: RequestStatus.CANCELLED,
    FinishReason.EXPIRED: RequestStatus.EXPIRED,
    FinishReason.ERROR: RequestStatus.FAILED,
    FinishReason.UNFIT: RequestStatus.FAILED,
    FinishReason.QUARANTINED: RequestStatus.QUARANTINED,
}

BEAT_S = 0.5
FORSAKEN_S = 10.0  # without an answer of the store for so long, streams fall silent, so that clients look elsewhere
MAX_BEATS_PER_S = 1000.0
READ_BATCH = 256  # logs read in one store call


class Delivery:
    def __init__(self, store: RequestStore, replica_id: str, *, poll_s: float = 0.25) -> None:
        self._store = store
        self._replica_id = replica_id
        self._poll_s = poll_s
        self._readers: dict[str, list[Reader]] = {}
        self._to_read: dict[str, None] = {}  # in order
        self._is_moving = False
        self._answered_s = 0.0  # when the store last answered
        self._read_wake = asyncio.Event()
        self.on_new_work: Callable[[], None] = _nothing  # set by the service: wakes the drivers
        # What answers next may be a store that has lost writes, and made other tokens of them already.
        store.on_connection_lost(self.recheck_all)

    @property
    def num_streams(self) -> int:
        return sum(map(len, self._readers.values()))

    @property
    def beat_s(self) -> float:
        """A stream that has sent nothing for so long says that it lives; thousands do so less often."""
        return max(BEAT_S, self.num_streams / MAX_BEATS_PER_S)

    @property
    def next_within_ms(self) -> int:
        """What a stream may promise its client."""
        return round(1e3 * (self.beat_s + 2 * self._poll_s))

    def open(self, request_id: str, start: int) -> Reader:
        reader = Reader(request_id, start)
        reader.sent_s = asyncio.get_running_loop().time()
        if self._is_moving:
            reader.move()
        if not self._readers:
            self._answered_s = reader.sent_s  # nothing has been asked for a while
        self._readers.setdefault(request_id, []).append(reader)
        self._want(request_id)
        return reader

    def close(self, reader: Reader) -> None:
        readers = self._readers.get(reader.request_id, [])
        if reader in readers:
            readers.remove(reader)
        if not readers:
            self._readers.pop(reader.request_id, None)

    def move_all(self) -> None:
        """Tell every stream here to go on elsewhere, and every one that is still to be opened."""
        self._is_moving = True
        self.move_present()

    def move_present(self) -> None:
        """Tell those that are open to go on elsewhere: this replica does not reach the store."""
        for readers in self._readers.values():
            for reader in readers:
                reader.move()

    def recheck_all(self) -> None:
        """The store has lost writes: no stream goes on over tokens that are not in its log again."""
        for request_id, readers in self._readers.items():
            for reader in readers:
                reader.must_recheck = True
            self._want(request_id)

    def offer(self, rows: Sequence[CommitRow]) -> None:
        """Rows that a driver here has committed. Those of a batch come by the log, at its end."""
        for row in rows:
            if row.is_held:
                continue
            for reader in self._readers.get(row.request_id, ()):
                if reader.must_recheck:
                    self._want(row.request_id)
                    continue
                if row.num_cached_tokens >= 0:
                    reader.num_cached_tokens = row.num_cached_tokens
                if not reader.take(row.index, row.token_ids):
                    self._want(row.request_id)
                elif row.finish is not None:
                    reader.finish(_end_of(row, row.finish))
                reader.heard_s = asyncio.get_running_loop().time()

    def _want(self, request_id: str) -> None:
        self._to_read[request_id] = None
        self._read_wake.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._hear_doorbells())
            tasks.create_task(self._poll())
            tasks.create_task(self._read_wanted())

    async def _hear_doorbells(self) -> None:
        async for request_ids in self._store.doorbells(self._replica_id):
            if not request_ids:
                self.on_new_work()
            for request_id in request_ids:
                if request_id in self._readers:
                    self._want(request_id)

    async def _poll(self) -> None:
        """Streams that have heard nothing for a while look for themselves."""
        while True:
            await asyncio.sleep(self._poll_s)
            now_s, beat_s = asyncio.get_running_loop().time(), self.beat_s
            # Without the store it does not know what becomes of them: others may.
            may_beat = now_s - self._answered_s < FORSAKEN_S
            for request_id, readers in self._readers.items():
                for reader in readers:
                    if may_beat and now_s - reader.sent_s >= beat_s:
                        reader.sent_s = now_s
                        reader.beat()
                if any(now_s - reader.heard_s >= self._poll_s for reader in readers):
                    self._want(request_id)

    async def _read_wanted(self) -> None:
        while True:
            await self._read_wake.wait()
            self._read_wake.clear()
            wanted = [r for r in self._to_read if r in self._readers]
            self._to_read.clear()
            for at in range(0, len(wanted), READ_BATCH):
                batch = wanted[at : at + READ_BATCH]
                try:
                    await self._read(batch)
                except StoreUnavailable:
                    self._to_read.update(dict.fromkeys(batch))
                    await asyncio.sleep(self._poll_s)
                    self._read_wake.set()

    async def _read(self, request_ids: list[str]) -> None:
        # Streams may have gone while the batch before was read.
        starts = [(r, self._lowest(r)) for r in request_ids if r in self._readers]
        slices = await self._store.read_logs(starts)
        self._answered_s = now_s = asyncio.get_running_loop().time()
        for (request_id, start), found in zip(starts, slices, strict=True):
            for reader in tuple(self._readers.get(request_id, ())):
                reader.heard_s = now_s
                if found is None:
                    reader.lose(now_s)
                else:
                    reader.find()
                    self._feed(reader, start, found)

    def _lowest(self, request_id: str) -> int:
        readers = self._readers[request_id]
        return min(0 if reader.must_recheck else reader.num_known for reader in readers)

    def _feed(self, reader: Reader, start: int, found: LogSlice) -> None:
        must_read_all = reader.must_recheck and start > 0
        if must_read_all or not reader.take(start, found.token_ids):
            self._want(reader.request_id)
            return
        if found.num_output_tokens >= reader.num_known:
            reader.must_recheck = False
        reader.num_cached_tokens = max(reader.num_cached_tokens, found.num_cached_tokens)
        if found.status in TERMINAL and not reader.must_recheck:
            end = LogEnd(
                status=found.status,
                finish=found.finish,
                visible_tokens=found.visible_tokens,
                visible_chars=found.visible_chars,
                stop_match=found.stop_match,
                error=found.error,
            )
            reader.finish(end)


def _nothing() -> None:
    """Until the service has said what new work wakes."""


def _end_of(row: CommitRow, finish: FinishReason) -> LogEnd:
    return LogEnd(
        status=STATUS_AFTER[finish],
        finish=finish,
        visible_tokens=row.visible_tokens,
        visible_chars=row.visible_chars,
        stop_match=row.stop_match,
        error=row.error,
    )


async def keep_watching(
    store: RequestStore, replica_id: str, watched: dict[str, str], every_s: float
) -> None:
    """Refresh, in batches, the watches of the streams that are open here: nonce -> request id."""
    while True:
        await asyncio.sleep(every_s)
        if watched:
            with contextlib.suppress(StoreUnavailable):
                pairs = [(request_id, nonce) for nonce, request_id in watched.items()]
                await store.refresh_watches(replica_id, pairs)
