"""The state of the store in memory, how it is lost, and how it is read."""

import asyncio
import copy
from collections.abc import Callable, Iterable
from typing import Any

from store_model_values import (
    LIVE,
    SCAN_LIMIT,
    Batch,
    Request,
    Worker,
    entry_of,
    num_tokens_of,
    size_of,
)

from scheduler_service.store.limits import StoreLimits
from scheduler_service.store.values import (
    DriverReply,
    Fence,
    QueueWindow,
    RunningRecord,
)
from shared.errors import StaleFence, StoreRolledBack

KEPT = (  # what a restored copy of a store has in it
    "requests",
    "workers",
    "replicas",
    "batches",
    "strategy",
    "num_unread_tokens",
    "beats_until_ms",
    "amnesty_until_ms",
    "capacity",
    "fingerprint",
    "num_arrivals",
    "write_counter",
)


class StoreState:
    def __init__(
        self,
        *,
        now_ms: Callable[[], int],
        draw_nonce: Callable[[], int],
        limits: StoreLimits | None = None,
        marker: str = "model",
    ) -> None:
        self.now_ms = now_ms
        self.draw_nonce = draw_nonce
        self.limits = limits or StoreLimits()
        self.marker = marker
        self.requests: dict[str, Request] = {}
        self.workers: dict[str, Worker] = {}
        self.replicas: dict[str, tuple[int, int]] = {}  # beat, time of it
        self.fingerprint: str | None = None
        self.batches: dict[str, Batch] = {}
        self.strategy = ""
        self.num_unread_tokens = 0
        self.beats_until_ms: int | None = None
        self.amnesty_until_ms = 0
        self.capacity: tuple[int, int] | None = None  # of the largest worker, and since when
        self.num_arrivals = 0
        self.write_counter = 0
        self.listeners: list[tuple[str, asyncio.Queue[tuple[str, ...]]]] = []
        self._rung: dict[str, list[str]] = {}
        self._ring_all = False

    # Losing.

    def saved(self) -> dict[str, Any]:
        return {name: copy.deepcopy(getattr(self, name)) for name in KEPT}

    def restore(self, state: dict[str, Any]) -> None:
        """The same marker, fewer writes."""
        for name, value in state.items():
            setattr(self, name, copy.deepcopy(value))

    def empty(self) -> None:
        fresh = type(self)(now_ms=self.now_ms, draw_nonce=self.draw_nonce)
        self.restore(fresh.saved())
        self.marker += "'"

    # Reading.

    def _find(self, request_id: str) -> Request | None:
        request = self.requests.get(request_id)
        if request is None or request.status in LIVE or request.is_held:
            return request
        retention_s = 86_400 if request.status == "quarantined" else self.limits.retention_s
        if self.now_ms() >= request.ended_ms + retention_s * 1000:
            del self.requests[request_id]
            return None
        return request

    def _live(self, request_ids: Iterable[str]) -> list[Request]:
        found = (self._find(request_id) for request_id in dict.fromkeys(request_ids))
        return [request for request in found if request is not None and request.status in LIVE]

    def _waiting(self) -> list[Request]:
        waiting = [r for r in self.requests.values() if r.status == "waiting"]
        return sorted(waiting, key=lambda request: request.rank)

    def _running(self, incarnation: str) -> list[Request]:
        return [r for r in self.requests.values() if r.worker == incarnation]

    def _check(self, fence: Fence) -> Worker:
        worker = self.workers.get(fence.incarnation)
        is_older = worker is None or worker.epoch < fence.epoch
        if is_older and not (worker and worker.is_tombstoned):
            raise StoreRolledBack(str(fence))
        if worker is None or worker.is_tombstoned or worker.epoch != fence.epoch:
            raise StaleFence(str(fence))
        return worker

    def _record(self, request: Request) -> RunningRecord:
        return RunningRecord(
            request_id=request.new.request_id,
            assignment=request.assignment,
            num_output_tokens=len(request.log),
            payload=request.new.payload,
            log=tuple(request.log),
            tenant=request.new.tenant,
            priority=request.new.priority,
            attempts=request.attempts,
            batch_id=request.batch_id,
            payload_hash=request.new.payload_hash,
            num_prompt_tokens=request.new.num_prompt_tokens,
            max_tokens=request.new.max_tokens,
            is_exempt=request.new.watch is None,
            deadline_ms=request.deadline_ms or 0,
        )

    def _by_size(self) -> list[Request]:
        waiting = [r for r in self.requests.values() if r.status == "waiting"]
        return sorted(waiting, key=lambda r: (size_of(r), r.new.request_id.encode()))

    def _window(self, capacity: int) -> QueueWindow:
        waiting, now = self._waiting(), self.now_ms()
        num_scanned = -(-SCAN_LIMIT // self.limits.claim_window) * self.limits.claim_window
        fitting = [r for r in waiting[:num_scanned] if size_of(r) <= capacity]
        fitting = fitting or [r for r in self._by_size() if size_of(r) <= capacity]
        return QueueWindow(
            entries=tuple(entry_of(r, now) for r in fitting[: self.limits.claim_window]),
            num_waiting=len(waiting),
            num_running=sum(r.status == "running" for r in self.requests.values()),
            num_waiting_tokens=sum(num_tokens_of(r) for r in waiting),
            num_unfit=sum(size_of(r) > capacity for r in waiting),
        )

    def _reply(self, fence: Fence, has_written: bool = False) -> DriverReply:
        self._seal(has_written)
        flagged = [r for r in self._running(fence.incarnation) if r.flag is not None]
        flagged.sort(key=lambda request: request.new.request_id)
        return DriverReply(
            window=self._window(self.workers[fence.incarnation].capacity),
            cancelled_ids=tuple(r.new.request_id for r in flagged),
            cancel_reasons=tuple(r.flag for r in flagged if r.flag is not None),
            marker=self.marker,
            write_counter=self.write_counter,
        )

    def _ring(self, request: Request) -> None:
        if request.watch is not None:
            ids = self._rung.setdefault(request.watch.replica_id, [])
            if request.new.request_id not in ids:
                ids.append(request.new.request_id)

    def _seal(self, has_written: bool = True) -> None:
        """Ends every call: bells, write counter."""
        rung, self._rung = self._rung, {}
        ring_all, self._ring_all = self._ring_all, False
        for replica_id, queue in self.listeners:
            if replica_id in rung:
                queue.put_nowait(tuple(rung[replica_id]))
            if ring_all:
                queue.put_nowait(())
        self.write_counter += bool(has_written or rung or ring_all)
