"""What the store in memory keeps of requests, batches and workers, and what it says of them."""

from dataclasses import dataclass, field, replace

from scheduler_service.store.values import (
    BatchRecord,
    CommitRow,
    LogSlice,
    NewRequest,
    QueueEntry,
    Watch,
)
from shared.types import Assignment, FinishReason

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


def mark_unread(request: Request) -> None:
    if request.unread_from is None:
        request.unread_from = len(request.log)


def may_adopt(request: Request, nonce: str) -> bool:
    """One of several readers refreshes: its watch becomes the present one."""
    if request.status not in LIVE or request.last_nonce == nonce or not request.num_readers:
        return False
    return request.num_readers > 1 or request.last_nonce == ""


def is_claimable(request: Request, incarnation: str, now_ms: int) -> bool:
    if request.status == "running":
        return request.worker == incarnation
    return request.deadline_ms is None or request.deadline_ms > now_ms


def size_of(request: Request) -> int:
    return request.new.num_prompt_tokens + request.new.max_tokens


def num_tokens_of(request: Request) -> int:
    return request.new.num_prompt_tokens + len(request.log)


def entry_of(request: Request, now_ms: int) -> QueueEntry:
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


def slice_of(request: Request | None, start: int) -> LogSlice | None:
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
