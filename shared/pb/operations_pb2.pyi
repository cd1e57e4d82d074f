from shared.pb import worker_pb2 as _worker_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetLoadsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchLoadsRequest(_message.Message):
    __slots__ = ("interval_ms",)
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    interval_ms: int
    def __init__(self, interval_ms: _Optional[int] = ...) -> None: ...

class WorkerLoad(_message.Message):
    __slots__ = ("stats", "address", "name", "driven_here")
    STATS_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DRIVEN_HERE_FIELD_NUMBER: _ClassVar[int]
    stats: _worker_pb2.WorkerStats
    address: str
    name: str
    driven_here: bool
    def __init__(self, stats: _Optional[_Union[_worker_pb2.WorkerStats, _Mapping]] = ..., address: _Optional[str] = ..., name: _Optional[str] = ..., driven_here: _Optional[bool] = ...) -> None: ...

class Loads(_message.Message):
    __slots__ = ("replica_id", "model", "num_waiting", "num_running", "num_waiting_tokens", "workers", "num_streams", "num_tasks", "num_replicas", "totals", "strategy", "serving", "num_unread_tokens")
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    NUM_WAITING_FIELD_NUMBER: _ClassVar[int]
    NUM_RUNNING_FIELD_NUMBER: _ClassVar[int]
    NUM_WAITING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    NUM_STREAMS_FIELD_NUMBER: _ClassVar[int]
    NUM_TASKS_FIELD_NUMBER: _ClassVar[int]
    NUM_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    SERVING_FIELD_NUMBER: _ClassVar[int]
    NUM_UNREAD_TOKENS_FIELD_NUMBER: _ClassVar[int]
    replica_id: str
    model: str
    num_waiting: int
    num_running: int
    num_waiting_tokens: int
    workers: _containers.RepeatedCompositeFieldContainer[WorkerLoad]
    num_streams: int
    num_tasks: int
    num_replicas: int
    totals: StepTotals
    strategy: str
    serving: bool
    num_unread_tokens: int
    def __init__(self, replica_id: _Optional[str] = ..., model: _Optional[str] = ..., num_waiting: _Optional[int] = ..., num_running: _Optional[int] = ..., num_waiting_tokens: _Optional[int] = ..., workers: _Optional[_Iterable[_Union[WorkerLoad, _Mapping]]] = ..., num_streams: _Optional[int] = ..., num_tasks: _Optional[int] = ..., num_replicas: _Optional[int] = ..., totals: _Optional[_Union[StepTotals, _Mapping]] = ..., strategy: _Optional[str] = ..., serving: _Optional[bool] = ..., num_unread_tokens: _Optional[int] = ...) -> None: ...

class StepTotals(_message.Message):
    __slots__ = ("num_steps", "num_prompt_tokens", "num_recomputed_tokens", "num_cached_tokens", "num_sampled_tokens", "num_preemptions", "busy_ns", "bubble_ns", "plan_ns", "commit_ns", "num_commits", "batch_size_ns", "held_blocks_ns", "num_held_sequence_steps", "num_tokens_after_cancel", "num_expired_prompt_tokens", "num_replayed_tokens")
    NUM_STEPS_FIELD_NUMBER: _ClassVar[int]
    NUM_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_RECOMPUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_SAMPLED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    BUSY_NS_FIELD_NUMBER: _ClassVar[int]
    BUBBLE_NS_FIELD_NUMBER: _ClassVar[int]
    PLAN_NS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_NS_FIELD_NUMBER: _ClassVar[int]
    NUM_COMMITS_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_NS_FIELD_NUMBER: _ClassVar[int]
    HELD_BLOCKS_NS_FIELD_NUMBER: _ClassVar[int]
    NUM_HELD_SEQUENCE_STEPS_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_AFTER_CANCEL_FIELD_NUMBER: _ClassVar[int]
    NUM_EXPIRED_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_REPLAYED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    num_steps: int
    num_prompt_tokens: int
    num_recomputed_tokens: int
    num_cached_tokens: int
    num_sampled_tokens: int
    num_preemptions: int
    busy_ns: int
    bubble_ns: int
    plan_ns: int
    commit_ns: int
    num_commits: int
    batch_size_ns: float
    held_blocks_ns: float
    num_held_sequence_steps: int
    num_tokens_after_cancel: int
    num_expired_prompt_tokens: int
    num_replayed_tokens: int
    def __init__(self, num_steps: _Optional[int] = ..., num_prompt_tokens: _Optional[int] = ..., num_recomputed_tokens: _Optional[int] = ..., num_cached_tokens: _Optional[int] = ..., num_sampled_tokens: _Optional[int] = ..., num_preemptions: _Optional[int] = ..., busy_ns: _Optional[int] = ..., bubble_ns: _Optional[int] = ..., plan_ns: _Optional[int] = ..., commit_ns: _Optional[int] = ..., num_commits: _Optional[int] = ..., batch_size_ns: _Optional[float] = ..., held_blocks_ns: _Optional[float] = ..., num_held_sequence_steps: _Optional[int] = ..., num_tokens_after_cancel: _Optional[int] = ..., num_expired_prompt_tokens: _Optional[int] = ..., num_replayed_tokens: _Optional[int] = ...) -> None: ...

class WatchStepsRequest(_message.Message):
    __slots__ = ("replay_recent",)
    REPLAY_RECENT_FIELD_NUMBER: _ClassVar[int]
    replay_recent: bool
    def __init__(self, replay_recent: _Optional[bool] = ...) -> None: ...

class ScheduledSequence(_message.Message):
    __slots__ = ("request_id", "num_tokens", "is_decode", "admitted")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IS_DECODE_FIELD_NUMBER: _ClassVar[int]
    ADMITTED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    num_tokens: int
    is_decode: bool
    admitted: bool
    def __init__(self, request_id: _Optional[str] = ..., num_tokens: _Optional[int] = ..., is_decode: _Optional[bool] = ..., admitted: _Optional[bool] = ...) -> None: ...

class SkippedRequest(_message.Message):
    __slots__ = ("request_id", "reason", "count")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    reason: str
    count: int
    def __init__(self, request_id: _Optional[str] = ..., reason: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class AdmittedRequest(_message.Message):
    __slots__ = ("request_id", "num_prompt_tokens", "num_output_tokens", "max_tokens", "age_ms")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NUM_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    num_prompt_tokens: int
    num_output_tokens: int
    max_tokens: int
    age_ms: int
    def __init__(self, request_id: _Optional[str] = ..., num_prompt_tokens: _Optional[int] = ..., num_output_tokens: _Optional[int] = ..., max_tokens: _Optional[int] = ..., age_ms: _Optional[int] = ...) -> None: ...

class EndedRequest(_message.Message):
    __slots__ = ("request_id", "num_output_tokens", "reason")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NUM_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    num_output_tokens: int
    reason: str
    def __init__(self, request_id: _Optional[str] = ..., num_output_tokens: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class StepRecord(_message.Message):
    __slots__ = ("replica_id", "incarnation", "worker", "epoch", "step_id", "scheduled", "skipped", "preempted", "blocks", "num_waiting", "num_running", "timings", "predicted_ns", "plan_ns", "num_sampled", "strategy", "num_planned_tokens", "admitted", "ended", "num_missed")
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    PREEMPTED_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_WAITING_FIELD_NUMBER: _ClassVar[int]
    NUM_RUNNING_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_NS_FIELD_NUMBER: _ClassVar[int]
    PLAN_NS_FIELD_NUMBER: _ClassVar[int]
    NUM_SAMPLED_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    NUM_PLANNED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ADMITTED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    NUM_MISSED_FIELD_NUMBER: _ClassVar[int]
    replica_id: str
    incarnation: str
    worker: str
    epoch: int
    step_id: int
    scheduled: _containers.RepeatedCompositeFieldContainer[ScheduledSequence]
    skipped: _containers.RepeatedCompositeFieldContainer[SkippedRequest]
    preempted: _containers.RepeatedScalarFieldContainer[str]
    blocks: _worker_pb2.BlockCounts
    num_waiting: int
    num_running: int
    timings: _worker_pb2.StepTimings
    predicted_ns: int
    plan_ns: int
    num_sampled: int
    strategy: str
    num_planned_tokens: int
    admitted: _containers.RepeatedCompositeFieldContainer[AdmittedRequest]
    ended: _containers.RepeatedCompositeFieldContainer[EndedRequest]
    num_missed: int
    def __init__(self, replica_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., worker: _Optional[str] = ..., epoch: _Optional[int] = ..., step_id: _Optional[int] = ..., scheduled: _Optional[_Iterable[_Union[ScheduledSequence, _Mapping]]] = ..., skipped: _Optional[_Iterable[_Union[SkippedRequest, _Mapping]]] = ..., preempted: _Optional[_Iterable[str]] = ..., blocks: _Optional[_Union[_worker_pb2.BlockCounts, _Mapping]] = ..., num_waiting: _Optional[int] = ..., num_running: _Optional[int] = ..., timings: _Optional[_Union[_worker_pb2.StepTimings, _Mapping]] = ..., predicted_ns: _Optional[int] = ..., plan_ns: _Optional[int] = ..., num_sampled: _Optional[int] = ..., strategy: _Optional[str] = ..., num_planned_tokens: _Optional[int] = ..., admitted: _Optional[_Iterable[_Union[AdmittedRequest, _Mapping]]] = ..., ended: _Optional[_Iterable[_Union[EndedRequest, _Mapping]]] = ..., num_missed: _Optional[int] = ...) -> None: ...

class QueuePolicy(_message.Message):
    __slots__ = ("timeout_action", "default_timeout_ms", "allow_timeout_override", "max_queue_size")
    TIMEOUT_ACTION_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    ALLOW_TIMEOUT_OVERRIDE_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUE_SIZE_FIELD_NUMBER: _ClassVar[int]
    timeout_action: str
    default_timeout_ms: int
    allow_timeout_override: bool
    max_queue_size: int
    def __init__(self, timeout_action: _Optional[str] = ..., default_timeout_ms: _Optional[int] = ..., allow_timeout_override: _Optional[bool] = ..., max_queue_size: _Optional[int] = ...) -> None: ...

class Strategy(_message.Message):
    __slots__ = ("name", "token_budget", "max_sequences", "chunk_size", "admission", "refill_delay_ms", "batch_size", "max_wait_ms", "preferred_batch_sizes", "max_batch_size", "max_queue_delay_ms", "preserve_ordering", "default_queue_policy", "priority_queue_policy", "release")
    class PriorityQueuePolicyEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: QueuePolicy
        def __init__(self, key: _Optional[int] = ..., value: _Optional[_Union[QueuePolicy, _Mapping]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOKEN_BUDGET_FIELD_NUMBER: _ClassVar[int]
    MAX_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    CHUNK_SIZE_FIELD_NUMBER: _ClassVar[int]
    ADMISSION_FIELD_NUMBER: _ClassVar[int]
    REFILL_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    PREFERRED_BATCH_SIZES_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUE_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    PRESERVE_ORDERING_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_QUEUE_POLICY_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_QUEUE_POLICY_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    name: str
    token_budget: int
    max_sequences: int
    chunk_size: int
    admission: str
    refill_delay_ms: int
    batch_size: int
    max_wait_ms: int
    preferred_batch_sizes: _containers.RepeatedScalarFieldContainer[int]
    max_batch_size: int
    max_queue_delay_ms: int
    preserve_ordering: bool
    default_queue_policy: QueuePolicy
    priority_queue_policy: _containers.MessageMap[int, QueuePolicy]
    release: str
    def __init__(self, name: _Optional[str] = ..., token_budget: _Optional[int] = ..., max_sequences: _Optional[int] = ..., chunk_size: _Optional[int] = ..., admission: _Optional[str] = ..., refill_delay_ms: _Optional[int] = ..., batch_size: _Optional[int] = ..., max_wait_ms: _Optional[int] = ..., preferred_batch_sizes: _Optional[_Iterable[int]] = ..., max_batch_size: _Optional[int] = ..., max_queue_delay_ms: _Optional[int] = ..., preserve_ordering: _Optional[bool] = ..., default_queue_policy: _Optional[_Union[QueuePolicy, _Mapping]] = ..., priority_queue_policy: _Optional[_Mapping[int, QueuePolicy]] = ..., release: _Optional[str] = ...) -> None: ...

class SetStrategyRequest(_message.Message):
    __slots__ = ("strategy",)
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    strategy: Strategy
    def __init__(self, strategy: _Optional[_Union[Strategy, _Mapping]] = ...) -> None: ...

class SetStrategyReply(_message.Message):
    __slots__ = ("strategy", "is_pools")
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    IS_POOLS_FIELD_NUMBER: _ClassVar[int]
    strategy: Strategy
    is_pools: bool
    def __init__(self, strategy: _Optional[_Union[Strategy, _Mapping]] = ..., is_pools: _Optional[bool] = ...) -> None: ...

class GetStrategyRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListQuarantinedRequest(_message.Message):
    __slots__ = ("limit",)
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    limit: int
    def __init__(self, limit: _Optional[int] = ...) -> None: ...

class QuarantinedRequest(_message.Message):
    __slots__ = ("request_id", "age_ms", "tenant", "num_prompt_tokens", "num_output_tokens", "error")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    NUM_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    age_ms: int
    tenant: str
    num_prompt_tokens: int
    num_output_tokens: int
    error: str
    def __init__(self, request_id: _Optional[str] = ..., age_ms: _Optional[int] = ..., tenant: _Optional[str] = ..., num_prompt_tokens: _Optional[int] = ..., num_output_tokens: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class QuarantineList(_message.Message):
    __slots__ = ("requests",)
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[QuarantinedRequest]
    def __init__(self, requests: _Optional[_Iterable[_Union[QuarantinedRequest, _Mapping]]] = ...) -> None: ...

class ReleaseQuarantinedRequest(_message.Message):
    __slots__ = ("request_ids",)
    REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    request_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, request_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ReleaseQuarantinedReply(_message.Message):
    __slots__ = ("num_released",)
    NUM_RELEASED_FIELD_NUMBER: _ClassVar[int]
    num_released: int
    def __init__(self, num_released: _Optional[int] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DrainReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
