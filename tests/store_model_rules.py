"""The rules of the store in memory, by which requests change their state."""

from collections.abc import Sequence

from store_model_state import StoreState
from store_model_values import LAPSE_LIMIT, LIVE, STATUS, Batch, Request, mark_unread, size_of

from scheduler_service.store.values import (
    BatchRecord,
    BatchStart,
    CommitRow,
    Fence,
    RowStatus,
    Watch,
)
from shared.types import FinishReason


class StoreRules(StoreState):
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
            mark_unread(request)
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
        unfit = [r for r in self._by_size() if size_of(r) > largest]
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
