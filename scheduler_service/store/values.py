"""The values that pass between the scheduler and its store. Times in milliseconds are by the store's own clock."""

from dataclasses import dataclass, field

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
