"""Rows of a driver to the store, in order, until the store has them: commit, then deliver.

Ordinary async code over an injected store and the loop's clock (I12). Every call to the store may be
repeated, so a lost answer costs time and nothing else.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from scheduler_service.driver_values import DriverSettings
from scheduler_service.store.interface import RequestStore
from scheduler_service.store.values import CommitRow, DriverReply, Fence, RowStatus
from shared.errors import StoreRolledBack, StoreUnavailable

Reply = TypeVar("Reply")


@dataclass(slots=True)
class _Batch:
    """What one result brought: rows, then requeues."""

    step_id: int
    rows: Sequence[CommitRow]
    requeues: Sequence[str] = ()
    is_beat: bool = False  # commit even without rows


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitListener:
    """Who hears what became of the rows."""

    durable: Callable[[Sequence[CommitRow]], None]  # these may be delivered
    refused: Callable[[str], None]  # this request is no longer ours
    replied: Callable[[DriverReply], None]
    rolled_back: Callable[[], None]  # the store has lost writes
    output_of: Callable[[str], Sequence[int]]  # all output ids of a live request, else none


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass(slots=True)
class Committer:
    store: RequestStore
    settings: DriverSettings
    listener: CommitListener
    clock_ns: Callable[[], int]
    fence: Fence
    durable_step: int = 0
    num_uncommitted: int = 0  # results that wait, or are being committed
    num_commits: int = 0
    commit_ns: int = 0
    is_store_down: bool = False
    _batches: deque[_Batch] = field(default_factory=deque)
    _committing: frozenset[str] = frozenset()
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _may_call: asyncio.Event = field(default_factory=_set_event)

    def put(
        self,
        step_id: int,
        rows: Sequence[CommitRow],
        requeues: Sequence[str] = (),
        *,
        is_beat: bool = False,
    ) -> None:
        self._batches.append(_Batch(step_id, rows, requeues, is_beat))
        self.num_uncommitted += 1
        self._wake.set()

    def hold(self) -> None:
        """No call before `go_on`: the store must first be told what runs here."""
        self._may_call.clear()

    def go_on(self) -> None:
        self._may_call.set()

    def awaited(self) -> set[str]:
        """Requests of which something is still on its way to the store."""
        names = {row.request_id for batch in self._batches for row in batch.rows}
        names.update(name for batch in self._batches for name in batch.requeues)
        return names | self._committing

    async def run(self) -> None:
        while True:
            while not self._batches:
                self._wake.clear()
                await self._wake.wait()
            await self._write(self._take())

    def _take(self) -> list[_Batch]:
        """All that waits, up to a batch with requeues: these follow its rows at once."""
        batches: list[_Batch] = []
        while self._batches:
            batches.append(self._batches.popleft())
            if batches[-1].requeues:
                break
        return batches

    async def _write(self, batches: list[_Batch]) -> None:
        started_ns = self.clock_ns()
        rows = [row for batch in batches for row in batch.rows]
        requeues = batches[-1].requeues
        self._committing = frozenset((*(row.request_id for row in rows), *requeues))
        if rows or any(batch.is_beat for batch in batches):
            await self._commit(rows)
        reply: DriverReply | None = None
        if requeues:
            reply = await self._persist(partial(self.store.requeue, self.fence, requeues))
        if rows or requeues:
            self.commit_ns += self.clock_ns() - started_ns
            self.num_commits += 1
        self._committing = frozenset()
        self.durable_step = max(self.durable_step, batches[-1].step_id)
        self.num_uncommitted -= len(batches)
        if reply is not None:
            self.listener.replied(reply)

    async def _commit(self, rows: list[CommitRow]) -> None:
        outcome = await self._persist(partial(self.store.commit, self.fence, rows))
        durable: list[CommitRow] = []
        gaps: list[CommitRow] = []
        for row, status, length in zip(rows, outcome.statuses, outcome.lengths, strict=True):
            if status in (RowStatus.APPENDED, RowStatus.REPLAYED):
                durable.append(row)
            elif status == RowStatus.GAP:
                gaps.extend(self._from_length(row, length))
            else:
                self.listener.refused(row.request_id)
        self.listener.durable(durable)
        self.listener.replied(outcome.reply)
        if gaps:
            await self._commit(gaps)

    def _from_length(self, row: CommitRow, length: int) -> list[CommitRow]:
        """The log is shorter than this row's index: send all from there."""
        missing = tuple(self.listener.output_of(row.request_id)[length : row.index])
        if len(missing) != row.index - length:
            # Ended here and forgotten, and the store has lost its last tokens: they are made again.
            self.put(self.durable_step, (), [row.request_id])
            return []
        return [replace(row, index=length, token_ids=missing + row.token_ids)]

    async def _persist(self, call: Callable[[], Awaitable[Reply]]) -> Reply:
        """Repeat a call until the store has answered."""
        delay_s = self.settings.store_retry_s
        while True:
            await self._may_call.wait()
            try:
                result = await call()
            except StoreRolledBack:
                self.listener.rolled_back()
            except StoreUnavailable:
                self.is_store_down = True
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, self.settings.max_store_retry_s)
            else:
                self.is_store_down = False
                return result
