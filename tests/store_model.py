"""The store in memory: the same answers as `RedisStore`, by plain Python on one injected clock.

Used by simulations; `tests/contract` proves that it behaves like the real one.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence

from store_model_rules import StoreRules
from store_model_values import (
    ADOPTED_GRACE_MS,
    LIVE,
    QUARANTINE_ATTEMPTS,
    SILENT_REPLICA_MS,
    Request,
    Worker,
    is_claimable,
    mark_unread,
    may_adopt,
    num_tokens_of,
    slice_of,
)

from scheduler_service.store.values import (
    AdoptOutcome,
    AdoptStatus,
    AttachOutcome,
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
    RunningRecord,
    SubmitOutcome,
    Watch,
)
from shared.errors import QueueFull, RequestConflict, StaleFence, StoreRefused
from shared.types import Assignment, FinishReason


class StoreModel(StoreRules):
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
        num_tokens = sum(num_tokens_of(r) for r in waiting) + request.num_prompt_tokens
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
            if request is not None and may_adopt(request, nonce):
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
            mark_unread(self.requests[request_id])
            self.requests[request_id].last_nonce = ""
            self._seal()

    async def read_logs(self, starts: Sequence[tuple[str, int]]) -> tuple[LogSlice | None, ...]:
        return tuple(slice_of(self._find(request_id), start) for request_id, start in starts)

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
            r for r in self._live(nonces) if is_claimable(r, fence.incarnation, self.now_ms())
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
