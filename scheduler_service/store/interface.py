"""What the scheduler asks of its store, and the values that pass.

Implemented by `redis_store` and by the tests' model. Knows nothing of Redis, grpc or time. Times in
milliseconds are by the store's own clock.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from shared.types import Assignment, FinishReason, TokenIds


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRequest:
    """A validated request on its way into the queue."""

    request_id: str
    payload_hash: bytes  # SHA-256 over the client's fields as sent
    payload: bytes  # what the first submit decided: prompt ids, seed, rules. Opaque to the store
    priority: int = 0  # lower is served first
    tenant: str = ""
    num_prompt_tokens: int
    max_tokens: int
    timeout_ms: int = 0  # 0 = none
    queue_timeout_ms: int = 0  # longest time it wants to wait in the queue; 0 = any
    prefix_hashes: tuple[int, ...] = ()  # of the prompt's beginnings: `shared.prefixes`
    max_level_requests: int = 0  # waiting requests of its priority, this one included; 0 = any
    watch: "Watch | None" = None  # None: exempt for good, nobody ever needs to read


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Somebody reads this request's output on this replica."""

    replica_id: str
    nonce: str
    grace_ms: int  # unwatched for longer than this: cancelled. Negative: never


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitOutcome:
    created: bool  # False: the same request was there already
    payload: bytes  # the first stored one


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEntry:
    """A waiting request as the planner sees it."""

    request_id: str
    priority: int
    tenant: str
    num_prompt_tokens: int
    num_output_tokens: int  # in the log already
    max_tokens: int
    age_ms: int
    remaining_ms: int | None = None  # until the deadline
    attempts: int = 0
    queue_timeout_ms: int = 0
    prefix_hashes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueWindow:
    """The first waiting requests that fit this worker, in rank order, and the queue's totals."""

    entries: tuple[QueueEntry, ...] = ()
    num_waiting: int = 0
    num_running: int = 0
    num_waiting_tokens: int = 0
    num_unfit: int = 0  # of the waiting: too large for this worker, and not in the window


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverReply:
    """What a driver gets with every answer."""

    window: QueueWindow
    cancelled_ids: tuple[
        str, ...
    ] = ()  # running here, and cancelled, expired or unwatched: end them with that reason
    cancel_reasons: tuple[FinishReason, ...] = ()  # same length: CANCELLED or EXPIRED
    marker: str = ""  # the store instance's marker
    write_counter: int = 0


@dataclass(frozen=True, slots=True)
class Fence:
    """Who commits: (incarnation, epoch), checked by the store in the same call."""

    incarnation: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRecord:
    """A request that the store says runs on this worker."""

    request_id: str
    assignment: Assignment
    num_output_tokens: int  # the log's length
    payload: bytes
    log: TokenIds
    tenant: str
    priority: int
    attempts: int = 0
    batch_id: str = ""  # of a static or dynamic batch
    # What a driver must be able to give back, should the store lose it:
    payload_hash: bytes = b""
    num_prompt_tokens: int = 0
    max_tokens: int = 0
    is_exempt: bool = False  # nobody needs to read it
    deadline_ms: int = 0  # by the store's clock; 0 = none


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStart:
    """The claimed become one static or dynamic batch."""

    batch_id: str
    settings: str  # JSON: the rules that it runs by to its end. Opaque to the store
    is_held: bool  # answers are held back until the last member has ended


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord:
    batch_id: str
    settings: str
    size: int  # members when it began


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachOutcome:
    running: tuple[RunningRecord, ...]
    batches: tuple[BatchRecord, ...] = ()  # that have members running here
    reply: DriverReply


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimOutcome:
    claimed: tuple[RunningRecord, ...]
    reply: DriverReply


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRow:
    """Tokens of one request for its log, and its end where it ends. Atomic together."""

    request_id: str
    assignment: Assignment
    index: int  # output index of the first id
    token_ids: TokenIds
    finish: FinishReason | None = None
    visible_tokens: int = -1  # with finish: ids a client may see; -1 = all
    visible_chars: int = -1  # with finish: characters a client may see; -1 = all
    stop_match: str = ""  # with finish: the stop string, or the stop token's id in decimal
    error: str = ""  # with ERROR
    num_cached_tokens: int = (
        -1
    )  # prompt tokens found in the prefix cache; -1 = not known with this row
    is_held: bool = False  # the store shows it only when its batch has ended: not to be delivered


class RowStatus:
    """The store's answer to one commit row."""

    APPENDED = "appended"
    REPLAYED = "replayed"  # all of it was there already, with equal values
    GAP = "gap"  # index above the log's length: send from the log's length
    STALE = "stale"  # the assignment is not current, or the request has ended
    DATA_LOSS = "data_loss"  # values differ from the log: the request has been ended so


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOutcome:
    statuses: tuple[str, ...]  # a RowStatus each
    lengths: tuple[int, ...]  # the log's length after each row
    reply: DriverReply


class AdoptStatus:
    ADOPTED = "adopted"
    STALE = "stale"  # it has ended, or runs elsewhere by a newer assignment
    DATA_LOSS = "data_loss"  # the log has other tokens: the request has been ended so


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptOutcome:
    statuses: tuple[str, ...]  # an AdoptStatus each
    reply: DriverReply


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSlice:
    """A request's log from an index on, with its state at the same instant."""

    request_id: str
    status: str
    num_output_tokens: int
    token_ids: TokenIds  # [start, num_output_tokens)
    finish: FinishReason | None = None
    visible_tokens: int = -1
    visible_chars: int = -1
    stop_match: str = ""
    error: str = ""
    num_cached_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedRequest:
    request_id: str
    age_ms: int  # since its quarantine
    tenant: str
    num_prompt_tokens: int
    num_output_tokens: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTotals:
    num_waiting: int = 0
    num_running: int = 0
    num_waiting_tokens: int = 0
    replica_beats: dict[str, int] = field(default_factory=dict)  # replica id -> beat counter
    strategy: str = ""  # JSON: how the pool forms its batches; empty: as each replica is set
    num_unread_tokens: int = 0  # committed for requests cancelled or abandoned before
    marker: str = ""
    write_counter: int = 0


class RequestStore(Protocol):
    """All calls are atomic. They raise StoreUnavailable if there is no answer: the outcome is then
    unknown, and every call may be repeated. Those with a fence raise StaleFence if it is not the
    current one, and StoreRolledBack if the store knows less than the fence: it has lost writes."""

    async def submit(self, request: NewRequest) -> SubmitOutcome:
        """Submitting it again changes nothing but its watch. Raises RequestConflict, QueueFull."""

    async def attach_pool(self, fingerprint: str) -> None:
        """Tie the pool to one model. Raises StoreRefused if it is tied to another."""

    async def attach_driver(self, fence: Fence, replica_id: str, capacity: int) -> AttachOutcome:
        """`capacity`: tokens of the largest request that the worker can run.

        The same (incarnation, epoch, replica) once more is a retry. Raises StaleFence if the
        incarnation is tombstoned, or its epoch is not above the stored one."""

    async def poll(self, fence: Fence) -> DriverReply:
        """Writes nothing unless something has lapsed; does not raise the worker's beat."""

    async def claim(
        self,
        fence: Fence,
        request_ids: Sequence[str],
        at_least: int = 1,
        batch: BatchStart | None = None,
    ) -> ClaimOutcome:
        """Assign those still waiting to this worker; none of them, if fewer than `at_least`.

        Those that run here already count, and come with their present assignment: an earlier
        answer may have been lost. A driver passes over the ones it knows."""

    async def commit(self, fence: Fence, rows: Sequence[CommitRow]) -> CommitOutcome:
        """Raises the worker's beat, also without rows: the driver's word that its worker lives."""

    async def requeue(self, fence: Fence, request_ids: Sequence[str]) -> DriverReply:
        """Running here -> waiting at their rank."""

    async def reject(self, fence: Fence, request_ids: Sequence[str]) -> DriverReply:
        """Waiting -> expired: their queue policy lets them wait no longer."""

    async def adopt(self, fence: Fence, records: Sequence[RunningRecord]) -> AdoptOutcome:
        """After the store has lost writes: what this worker holds, logs whole.

        Creates lost records, takes waiting ones, appends what the logs lack."""

    async def set_strategy(self, strategy: str) -> None:
        """For all replicas, which learn of it by their beat. Empty: as each is set."""

    async def reclaim(self, incarnation: str, epoch: int, beat: int) -> tuple[str, ...] | None:
        """Tombstone a dead worker and requeue its requests; their ids, none if it was done before.

        None: (epoch, beat) has changed, it lives."""

    async def read_worker_beat(self, incarnation: str) -> tuple[int, int] | None:
        """(epoch, beat) of an attached worker; None if it is unknown or tombstoned."""

    async def detach_worker(self, fence: Fence) -> tuple[str, ...]:
        """A drained or ended worker leaves: its requests return to the queue, it is tombstoned."""

    async def list_workers(self) -> tuple[str, ...]:
        """Incarnations attached and not yet swept."""

    async def cancel(self, request_ids: Sequence[str]) -> None:
        """Waiting -> cancelled at once; running -> flagged for its driver; else nothing."""

    async def watch(self, request_id: str, watch: Watch) -> bool:
        """A reader is there. False: no such request."""

    async def refresh_watches(self, replica_id: str, watches: Sequence[tuple[str, str]]) -> None:
        """(request id, nonce) pairs whose readers are still there."""

    async def unwatch(self, request_id: str, nonce: str) -> None:
        """The reader has gone: the grace of this watch begins, if it is still the present one.

        Where other streams have read the request too, they have the lease's time to refresh first.
        """

    async def read_logs(self, starts: Sequence[tuple[str, int]]) -> tuple[LogSlice | None, ...]:
        """(request id, start index) pairs -> slices; None for an unknown id."""

    async def read_payload(self, request_id: str) -> bytes | None: ...

    async def beat(self, replica_id: str) -> PoolTotals:
        """This replica lives; the answer says which others beat, and the queue's totals.

        Ends what has lapsed, and what no attached worker can run."""

    async def leave(self, replica_id: str) -> None: ...

    async def list_quarantined(self, most: int = 100) -> tuple[QuarantinedRequest, ...]:
        """The newest first."""

    async def release_quarantined(self, request_ids: Sequence[str]) -> int:
        """Forget them: their ids may be submitted anew. Returns how many there were."""

    def on_connection_lost(self, tell: Callable[[], None]) -> None:
        """`tell` is called whenever a connection to the store is lost: what comes after may be another server,
        or the same one with fewer writes."""

    def doorbells(self, replica_id: str) -> AsyncIterator[tuple[str, ...]]:
        """Hints: ids watched here whose logs grew or that ended, or an empty tuple: look at the
        queue and at the flags. May lose any."""

    async def close(self) -> None: ...
