"""The store in memory: the same answers as `RedisStore`, by plain Python on one injected clock.

Used by simulations; `tests/contract` proves that it behaves like the real one.
"""

import asyncio
import copy
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from scheduler_service.store.limits import StoreLimits
from scheduler_service.store.values import (
    AdoptOutcome,
    AdoptStatus,
    AttachOutcome,
    BatchRecord,
    BatchStart,
    ClaimOutcome,
    CommitOutcome,
    CommitRow,
    DriverReply,
    Fence,
    LogSlice,
    NewRequest,
    PoolTotals,
    QuarantinedRequest,
    QueueEntry,
    QueueWindow,
    RowStatus,
    RunningRecord,
    SubmitOutcome,
    Watch,
)
from shared.errors import QueueFull, RequestConflict, StaleFence, StoreRefused, StoreRolledBack
from shared.types import Assignment, FinishReason

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

LAPSE_LIMIT = 32
SCAN_LIMIT = 1024
QUARANTINE_ATTEMPTS = 5
ADOPTED_GRACE_MS = 30_000
SILENT_REPLICA_MS = 60_000
LIVE = ("waiting", "running")
NO_ASSIGNMENT = Assignment(0, 0)
STATUS = {
    FinishReason.CANCELLED: "cancelled",
    FinishReason.EXPIRED: "expired",
    FinishReason.ERROR: "failed",
    FinishReason.UNFIT: "failed",
    FinishReason.QUARANTINED: "quarantined",
}


@dataclass(slots=True)
class Request:
    new: NewRequest
    rank: tuple[int, int]
    arrival_ms: int
    deadline_ms: int | None
    status: str = "waiting"
    worker: str = ""
    assignment: Assignment = NO_ASSIGNMENT
    attempts: int = 0
    log: list[int] = field(default_factory=list)
    flag: FinishReason | None = None
    watch: Watch | None = None  # the present one, None after unwatch
    watch_lapses_ms: int | None = None
    last_nonce: str | None = None  # "" after unwatch
    grace_ms: int = 0
    num_readers: int = 0
    batch_id: str = ""
    is_held: bool = False
    held_from: int = 0  # log length when it was claimed: so much may be read
    unread_from: int | None = None
    end: CommitRow | None = None
    num_cached_tokens: int = 0
    ended_ms: int = 0


@dataclass(slots=True)
class Batch:
    record: BatchRecord
    members: set[str]
    left: set[str]


@dataclass(slots=True)
class Worker:
    epoch: int
    replica_id: str
    capacity: int
    beat: int = 0
    is_tombstoned: bool = False


class StoreModel:
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
        fresh = StoreModel(now_ms=self.now_ms, draw_nonce=self.draw_nonce)
        self.restore(fresh.saved())
        self.marker += "'"

    # Doors.

    async def submit(self, request: NewRequest) -> SubmitOutcome:
        present = self._find(request.request_id)
        if present is not None:
            if present.new.payload_hash != request.payload_hash:
                raise RequestConflict(request.request_id)
            if request.watch is not None and present.status in LIVE:
                self._set_watch(present, request.watch)
                self._seal()
            return SubmitOutcome(created=False, payload=present.new.payload)
        waiting = self._waiting()
        num_tokens = sum(_num_tokens(r) for r in waiting) + request.num_prompt_tokens
        if len(waiting) >= self.limits.max_queued_requests:
            raise QueueFull(f"{len(waiting)} requests")
        if num_tokens > self.limits.max_queued_tokens:
            raise QueueFull(f"{num_tokens} tokens")
        level = [r for r in waiting if r.new.priority == request.priority]
        if 0 < request.max_level_requests <= len(level):
            raise QueueFull(f"{len(level)} requests of priority {request.priority}")
        self.num_arrivals += 1
        now = self.now_ms()
        made = Request(
            new=request,
            rank=(request.priority, self.num_arrivals),
            arrival_ms=now,
            deadline_ms=now + request.timeout_ms if request.timeout_ms > 0 else None,
        )
        self.requests[request.request_id] = made
        if request.watch is not None:
            self._set_watch(made, request.watch)
        self._ring_all = True
        self._seal()
        return SubmitOutcome(created=True, payload=request.payload)

    async def cancel(self, request_ids: Sequence[str]) -> None:
        for request in self._live(request_ids):
            self._end_or_flag(request, FinishReason.CANCELLED)
        self._seal()

    async def watch(self, request_id: str, watch: Watch) -> bool:
        request = self._find(request_id)
        if request is None:
            return False
        if request.status in LIVE:
            self._set_watch(request, watch)
            self._seal()
        elif request.is_held:
            request.watch = watch
            self._seal()
        return True

    async def refresh_watches(self, replica_id: str, watches: Sequence[tuple[str, str]]) -> None:
        for request_id, nonce in watches:
            request = self._find(request_id)
            if request is not None and _may_adopt(request, nonce):
                request.watch = Watch(replica_id=replica_id, nonce=nonce, grace_ms=request.grace_ms)
                request.last_nonce = nonce
                request.unread_from = None
            self._reset_lapse(request_id, nonce, self.limits.watch_lease_ms)
        self._seal()

    async def unwatch(self, request_id: str, nonce: str) -> None:
        request = self._find(request_id)
        is_shared = request is not None and request.num_readers > 1
        if request is not None:
            request.num_readers = max(0, request.num_readers - 1)
        if self._reset_lapse(request_id, nonce, self.limits.watch_lease_ms if is_shared else 0):
            self.requests[request_id].watch = None
            _mark_unread(self.requests[request_id])
            self.requests[request_id].last_nonce = ""
            self._seal()

    async def read_logs(self, starts: Sequence[tuple[str, int]]) -> tuple[LogSlice | None, ...]:
        return tuple(_slice(self._find(request_id), start) for request_id, start in starts)

    async def read_payload(self, request_id: str) -> bytes | None:
        request = self._find(request_id)
        return request.new.payload if request else None

    # Drivers.

    async def attach_driver(self, fence: Fence, replica_id: str, capacity: int) -> AttachOutcome:
        worker = self.workers.get(fence.incarnation)
        if worker is not None:
            is_repeat = (worker.epoch, worker.replica_id) == (fence.epoch, replica_id)
            if worker.is_tombstoned or not (is_repeat or worker.epoch < fence.epoch):
                raise StaleFence(str(fence))
        beat = worker.beat if worker else 0
        self.workers[fence.incarnation] = Worker(fence.epoch, replica_id, capacity, beat + 1)
        running = [self._record(r) for r in self._running(fence.incarnation)]
        running.sort(key=lambda record: record.request_id)
        open_batches = sorted({record.batch_id for record in running} & set(self.batches))
        return AttachOutcome(
            running=tuple(running),
            batches=tuple(self.batches[name].record for name in open_batches),
            reply=self._reply(fence, has_written=True),
        )

    async def poll(self, fence: Fence) -> DriverReply:
        self._check(fence)
        self._lapse()
        return self._reply(fence)

    async def claim(
        self,
        fence: Fence,
        request_ids: Sequence[str],
        at_least: int = 1,
        batch: BatchStart | None = None,
    ) -> ClaimOutcome:
        nonces = {request_id: self.draw_nonce() for request_id in dict.fromkeys(request_ids)}
        self._check(fence)
        self._lapse()
        chosen = [
            r for r in self._live(nonces) if _is_claimable(r, fence.incarnation, self.now_ms())
        ]
        if len(chosen) < at_least:
            chosen = []
        new = [request for request in chosen if request.status == "waiting"]
        if batch is not None and new:
            self._begin_batch(batch, new)
        for request in chosen:
            if request.status == "waiting":
                nonce = nonces[request.new.request_id]
                request.assignment = Assignment(request.assignment.counter + 1, nonce)
                request.status, request.worker = "running", fence.incarnation
        claimed = tuple(self._record(request) for request in chosen)
        return ClaimOutcome(claimed=claimed, reply=self._reply(fence, has_written=bool(chosen)))

    async def commit(self, fence: Fence, rows: Sequence[CommitRow]) -> CommitOutcome:
        self._check(fence).beat += 1
        statuses, lengths = [], []
        for row in rows:
            request = self._find(row.request_id)
            statuses.append(self._commit_row(fence, row, request))
            lengths.append(len(request.log) if request else 0)
        self._lapse()
        return CommitOutcome(
            statuses=tuple(statuses),
            lengths=tuple(lengths),
            reply=self._reply(fence, has_written=True),
        )

    async def requeue(self, fence: Fence, request_ids: Sequence[str]) -> DriverReply:
        self._check(fence)
        for request in self._live(request_ids):
            if request.worker == fence.incarnation:
                self._return_to_queue(request)
        return self._reply(fence, has_written=True)

    async def adopt(self, fence: Fence, records: Sequence[RunningRecord]) -> AdoptOutcome:
        self._check(fence)
        statuses = tuple(self._adopt(fence, record) for record in records)
        return AdoptOutcome(statuses=statuses, reply=self._reply(fence, has_written=True))

    def _adopt(self, fence: Fence, record: RunningRecord) -> str:
        request = self._find(record.request_id)
        if request is None:
            request = self._recreate(record)
        elif request.status not in LIVE:
            return AdoptStatus.STALE
        elif request.status == "running":
            is_here = request.worker == fence.incarnation
            mine, stored = record.assignment.counter, request.assignment.counter
            if stored > mine or (not is_here and stored == mine):
                return AdoptStatus.STALE
        request.status, request.worker = "running", fence.incarnation
        request.assignment, request.flag = record.assignment, request.flag
        known = tuple(request.log[: len(record.log)])
        if record.log[: len(known)] != known:
            self._end(request, "data_loss", None)
            return AdoptStatus.DATA_LOSS
        request.log += record.log[len(known) :]
        self._ring(request)
        return AdoptStatus.ADOPTED

    def _recreate(self, record: RunningRecord) -> Request:
        self.num_arrivals += 1
        new = NewRequest(
            request_id=record.request_id,
            payload_hash=record.payload_hash,
            payload=record.payload,
            priority=record.priority,
            tenant=record.tenant,
            num_prompt_tokens=record.num_prompt_tokens,
            max_tokens=record.max_tokens,
            watch=None
            if record.is_exempt
            else Watch(replica_id="", nonce="", grace_ms=ADOPTED_GRACE_MS),
        )
        made = Request(
            new=new,
            rank=(record.priority, self.num_arrivals),
            arrival_ms=self.now_ms(),
            deadline_ms=record.deadline_ms or None,
            attempts=record.attempts,
            num_readers=1,
            last_nonce="",
            grace_ms=ADOPTED_GRACE_MS,
        )
        if not record.is_exempt:
            made.watch_lapses_ms = self.now_ms() + 2 * ADOPTED_GRACE_MS
        self.requests[record.request_id] = made
        return made

    async def reject(self, fence: Fence, request_ids: Sequence[str]) -> DriverReply:
        self._check(fence)
        waiting = [r for r in self._live(request_ids) if r.status == "waiting"]
        for request in waiting:
            error = "it waited longer than its queue timeout"
            self._end_by(request, FinishReason.EXPIRED, error)
        return self._reply(fence, has_written=bool(waiting))

    # Membership.

    async def set_strategy(self, strategy: str) -> None:
        self.strategy = strategy
        self._ring_all = True
        self._seal()

    async def attach_pool(self, fingerprint: str) -> None:
        if self.fingerprint is None:
            self.fingerprint = fingerprint
            self._seal()
        if self.fingerprint != fingerprint:
            raise StoreRefused(f"the pool is tied to {self.fingerprint}")

    async def reclaim(self, incarnation: str, epoch: int, beat: int) -> tuple[str, ...] | None:
        worker = self.workers.get(incarnation)
        if worker is not None and worker.is_tombstoned:
            return ()
        if worker is None or (worker.epoch, worker.beat) != (epoch, beat):
            return None
        for request in self._running(incarnation):
            request.attempts += 1
            if request.attempts >= QUARANTINE_ATTEMPTS and request.flag is None:
                error = (
                    f"its worker died {request.attempts} times without a new token,"
                    " at last while nothing else ran"
                )
                self._end_by(request, FinishReason.QUARANTINED, error)
        return self._bury(incarnation)

    async def detach_worker(self, fence: Fence) -> tuple[str, ...]:
        worker = self.workers.get(fence.incarnation)
        if worker is None or worker.epoch != fence.epoch:
            raise StaleFence(str(fence))
        return () if worker.is_tombstoned else self._bury(fence.incarnation)

    async def read_worker_beat(self, incarnation: str) -> tuple[int, int] | None:
        worker = self.workers.get(incarnation)
        if worker is None or worker.is_tombstoned:
            return None
        return worker.epoch, worker.beat

    async def list_workers(self) -> tuple[str, ...]:
        return tuple(sorted(i for i, w in self.workers.items() if not w.is_tombstoned))

    async def beat(self, replica_id: str) -> PoolTotals:
        now = self.now_ms()
        if self.beats_until_ms is not None and now > self.beats_until_ms:
            self.amnesty_until_ms = now + self.limits.watch_lease_ms
        self.beats_until_ms = now + self.limits.outage_ms
        self._lapse()
        self._end_unfit()
        beat, _ = self.replicas.get(replica_id, (0, 0))
        self.replicas[replica_id] = (beat + 1, now)
        self.replicas = {
            name: one for name, one in self.replicas.items() if now - one[1] <= SILENT_REPLICA_MS
        }
        self._seal()
        window = self._window(sys.maxsize)
        return PoolTotals(
            num_waiting=window.num_waiting,
            num_running=window.num_running,
            num_waiting_tokens=window.num_waiting_tokens,
            replica_beats={name: beat for name, (beat, _) in self.replicas.items()},
            strategy=self.strategy,
            num_unread_tokens=self.num_unread_tokens,
            marker=self.marker,
            write_counter=self.write_counter,
        )

    async def leave(self, replica_id: str) -> None:
        self.replicas.pop(replica_id, None)
        self._seal()

    async def list_quarantined(self, most: int = 100) -> tuple[QuarantinedRequest, ...]:
        found = [r for r in self.requests.values() if r.status == "quarantined"]
        found.sort(key=lambda r: (-r.ended_ms, r.new.request_id))
        return tuple(
            QuarantinedRequest(
                request_id=r.new.request_id,
                age_ms=self.now_ms() - r.ended_ms,
                tenant=r.new.tenant,
                num_prompt_tokens=r.new.num_prompt_tokens,
                num_output_tokens=len(r.log),
                error=r.end.error if r.end else "",
            )
            for r in found[:most]
        )

    async def release_quarantined(self, request_ids: Sequence[str]) -> int:
        num = 0
        for request_id in request_ids:
            request = self._find(request_id)
            if request is not None and request.status == "quarantined":
                del self.requests[request_id]
                num += 1
        self._seal(bool(num))
        return num

    def on_connection_lost(self, tell: Callable[[], None]) -> None:
        """There is none that could be."""

    async def doorbells(self, replica_id: str) -> AsyncIterator[tuple[str, ...]]:
        listener = (replica_id, asyncio.Queue[tuple[str, ...]]())
        self.listeners.append(listener)
        try:
            yield ()
            while True:
                yield await listener[1].get()
        finally:
            self.listeners.remove(listener)

    async def close(self) -> None:
        pass

    # Rules.

    def _commit_row(self, fence: Fence, row: CommitRow, request: Request | None) -> str:
        if (
            request is None
            or (request.status, request.worker) != ("running", fence.incarnation)
            or request.assignment != row.assignment
        ):
            return RowStatus.STALE
        if row.index > len(request.log):
            return RowStatus.GAP
        known = tuple(request.log[row.index : row.index + len(row.token_ids)])
        if row.token_ids[: len(known)] != known:
            self._end(request, "data_loss", None)
            return RowStatus.DATA_LOSS
        status = RowStatus.APPENDED if row.index == len(request.log) else RowStatus.REPLAYED
        new = row.token_ids[len(known) :]
        if new:
            status = RowStatus.APPENDED
            request.log += new
            request.attempts = 0
            self._ring(request)
        if row.num_cached_tokens >= 0:
            request.num_cached_tokens = row.num_cached_tokens
        if row.finish is not None:
            self._end(request, STATUS.get(row.finish, "finished"), row)
        return status

    def _begin_batch(self, start: BatchStart, requests: Sequence[Request]) -> None:
        names = {request.new.request_id for request in requests}
        record = BatchRecord(batch_id=start.batch_id, settings=start.settings, size=len(requests))
        self.batches[start.batch_id] = Batch(record, set(names), set(names))
        for request in requests:
            request.batch_id, request.is_held = start.batch_id, start.is_held
            request.held_from = len(request.log)

    def _leave_batch(self, request: Request) -> None:
        batch = self.batches.get(request.batch_id)
        if batch is None:
            return
        batch.left.discard(request.new.request_id)
        if batch.left:
            return
        del self.batches[request.batch_id]
        for name in sorted(batch.members):
            member = self.requests.get(name)
            if member is None or member.batch_id != batch.record.batch_id or not member.is_held:
                continue
            member.is_held = False
            if member.status not in LIVE:
                self._ring(member)
                member.watch, member.ended_ms = None, self.now_ms()

    def _end(self, request: Request, status: str, end: CommitRow | None) -> None:
        if request.unread_from is not None and status == "cancelled":
            self.num_unread_tokens += len(request.log) - request.unread_from
        request.is_held = request.is_held and status == "finished"
        request.status, request.end = status, end
        request.worker, request.flag = "", None
        if not request.is_held:
            self._ring(request)
            request.watch = None
        self._leave_batch(request)
        request.deadline_ms = request.watch_lapses_ms = None
        request.ended_ms = self.now_ms()

    def _end_or_flag(self, request: Request, reason: FinishReason) -> None:
        if request.status == "waiting":
            self._end_by(request, reason)
        elif request.flag is None:
            request.flag = reason
            _mark_unread(request)
            self._ring_all = True

    def _end_by(self, request: Request, reason: FinishReason, error: str = "") -> None:
        row = CommitRow(
            request_id=request.new.request_id,
            assignment=request.assignment,
            index=0,
            token_ids=(),
            finish=reason,
            error=error,
        )
        self._end(request, STATUS[reason], row)

    def _lapse(self) -> None:
        now = self.now_ms()
        live = [r for r in self.requests.values() if r.status in LIVE]
        expired = [r for r in live if r.deadline_ms is not None and r.deadline_ms <= now]
        for request in sorted(expired, key=lambda r: r.deadline_ms or 0)[:LAPSE_LIMIT]:
            request.deadline_ms = None
            self._end_or_flag(request, FinishReason.EXPIRED)
        if now < self.amnesty_until_ms or (
            self.beats_until_ms is not None and now > self.beats_until_ms
        ):
            return
        lapsed = [r for r in live if r.watch_lapses_ms is not None and r.watch_lapses_ms <= now]
        for request in sorted(lapsed, key=lambda r: r.watch_lapses_ms or 0)[:LAPSE_LIMIT]:
            request.watch_lapses_ms = None
            self._end_or_flag(request, FinishReason.CANCELLED)

    def _end_unfit(self) -> None:
        capacities = [w.capacity for w in self.workers.values() if not w.is_tombstoned]
        if not capacities:
            self.capacity = None
            return
        now, largest = self.now_ms(), max(capacities)
        if self.capacity is None or self.capacity[0] != largest:
            self.capacity = largest, now
            return
        latest_ms = now - self.limits.unfit_timeout_ms
        if self.capacity[1] > latest_ms:
            return
        unfit = [r for r in self._by_size() if _size(r) > largest]
        for request in unfit[:LAPSE_LIMIT]:
            if request.arrival_ms <= latest_ms:
                new = request.new
                error = (
                    f"no worker can run {new.num_prompt_tokens} prompt tokens and {new.max_tokens}"
                    f" new ones: the largest takes {largest} together"
                )
                self._end_by(request, FinishReason.UNFIT, error)

    def _return_to_queue(self, request: Request) -> None:
        if request.flag is not None:
            self._end_by(request, request.flag)
            return
        request.status, request.worker, request.is_held = "waiting", "", False
        self._ring_all = True
        self._leave_batch(request)
        request.batch_id = ""

    def _bury(self, incarnation: str) -> tuple[str, ...]:
        self.workers[incarnation].is_tombstoned = True
        requests = list(self._running(incarnation))
        for request in requests:
            self._return_to_queue(request)
        self._seal()
        return tuple(sorted(r.new.request_id for r in requests if r.status == "waiting"))

    def _set_watch(self, request: Request, watch: Watch) -> None:
        if request.last_nonce != watch.nonce:
            request.num_readers += 1
        request.unread_from = None
        request.watch, request.last_nonce = watch, watch.nonce
        request.grace_ms = watch.grace_ms
        is_exempt = request.new.watch is None or watch.grace_ms < 0
        lapses_ms = self.now_ms() + self.limits.watch_lease_ms + watch.grace_ms
        request.watch_lapses_ms = None if is_exempt else lapses_ms

    def _reset_lapse(self, request_id: str, nonce: str, lease_ms: int) -> bool:
        """False: not the present watch."""
        request = self._find(request_id)
        if request is None or request.watch is None or request.watch.nonce != nonce:
            return False
        if request.watch_lapses_ms is not None:
            request.watch_lapses_ms = self.now_ms() + lease_ms + request.watch.grace_ms
        return True

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
        return sorted(waiting, key=lambda r: (_size(r), r.new.request_id.encode()))

    def _window(self, capacity: int) -> QueueWindow:
        waiting, now = self._waiting(), self.now_ms()
        num_scanned = -(-SCAN_LIMIT // self.limits.claim_window) * self.limits.claim_window
        fitting = [r for r in waiting[:num_scanned] if _size(r) <= capacity]
        fitting = fitting or [r for r in self._by_size() if _size(r) <= capacity]
        return QueueWindow(
            entries=tuple(_entry(r, now) for r in fitting[: self.limits.claim_window]),
            num_waiting=len(waiting),
            num_running=sum(r.status == "running" for r in self.requests.values()),
            num_waiting_tokens=sum(_num_tokens(r) for r in waiting),
            num_unfit=sum(_size(r) > capacity for r in waiting),
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


def _mark_unread(request: Request) -> None:
    if request.unread_from is None:
        request.unread_from = len(request.log)


def _may_adopt(request: Request, nonce: str) -> bool:
    """One of several readers refreshes: its watch becomes the present one."""
    if request.status not in LIVE or request.last_nonce == nonce or not request.num_readers:
        return False
    return request.num_readers > 1 or request.last_nonce == ""


def _is_claimable(request: Request, incarnation: str, now_ms: int) -> bool:
    if request.status == "running":
        return request.worker == incarnation
    return request.deadline_ms is None or request.deadline_ms > now_ms


def _size(request: Request) -> int:
    return request.new.num_prompt_tokens + request.new.max_tokens


def _num_tokens(request: Request) -> int:
    return request.new.num_prompt_tokens + len(request.log)


def _entry(request: Request, now_ms: int) -> QueueEntry:
    deadline_ms = request.deadline_ms
    return QueueEntry(
        request_id=request.new.request_id,
        priority=request.new.priority,
        tenant=request.new.tenant,
        num_prompt_tokens=request.new.num_prompt_tokens,
        num_output_tokens=len(request.log),
        max_tokens=request.new.max_tokens,
        age_ms=now_ms - request.arrival_ms,
        remaining_ms=None if deadline_ms is None else deadline_ms - now_ms,
        attempts=request.attempts,
        queue_timeout_ms=request.new.queue_timeout_ms,
        prefix_hashes=request.new.prefix_hashes,
    )


def _slice(request: Request | None, start: int) -> LogSlice | None:
    if request is None:
        return None
    if request.is_held:
        return LogSlice(
            request_id=request.new.request_id,
            status="running",
            num_output_tokens=request.held_from,
            token_ids=tuple(request.log[start : request.held_from]),
            num_cached_tokens=request.num_cached_tokens,
        )
    slice_ = LogSlice(
        request_id=request.new.request_id,
        status=request.status,
        num_output_tokens=len(request.log),
        token_ids=tuple(request.log[start:]),
        num_cached_tokens=request.num_cached_tokens,
    )
    if request.status == "data_loss":
        return replace(slice_, error="the committed log differs from the worker's rows")
    end = request.end
    if end is None:
        return slice_
    return replace(
        slice_,
        finish=end.finish,
        visible_tokens=end.visible_tokens,
        visible_chars=end.visible_chars,
        stop_match=end.stop_match,
        error=end.error,
    )
