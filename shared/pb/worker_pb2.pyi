from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReleaseReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RELEASE_REASON_UNSPECIFIED: _ClassVar[ReleaseReason]
    RELEASE_REASON_FINISHED: _ClassVar[ReleaseReason]
    RELEASE_REASON_CANCELLED: _ClassVar[ReleaseReason]
    RELEASE_REASON_PREEMPTED: _ClassVar[ReleaseReason]
    RELEASE_REASON_STALE: _ClassVar[ReleaseReason]
    RELEASE_REASON_FAILED: _ClassVar[ReleaseReason]

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_STOP_TOKEN: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]
    FINISH_REASON_STOP_STRING: _ClassVar[FinishReason]
    FINISH_REASON_CANCELLED: _ClassVar[FinishReason]
    FINISH_REASON_EXPIRED: _ClassVar[FinishReason]
    FINISH_REASON_ERROR: _ClassVar[FinishReason]
    FINISH_REASON_QUARANTINED: _ClassVar[FinishReason]
    FINISH_REASON_UNFIT: _ClassVar[FinishReason]

class RefusalReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REFUSAL_REASON_UNSPECIFIED: _ClassVar[RefusalReason]
    REFUSAL_REASON_NO_FREE_BLOCK: _ClassVar[RefusalReason]
    REFUSAL_REASON_UNKNOWN_HANDLE: _ClassVar[RefusalReason]
    REFUSAL_REASON_DUPLICATE_HANDLE: _ClassVar[RefusalReason]
    REFUSAL_REASON_BAD_ADMISSION: _ClassVar[RefusalReason]
    REFUSAL_REASON_FAILED: _ClassVar[RefusalReason]
    REFUSAL_REASON_SEQUENCE_CAP: _ClassVar[RefusalReason]
RELEASE_REASON_UNSPECIFIED: ReleaseReason
RELEASE_REASON_FINISHED: ReleaseReason
RELEASE_REASON_CANCELLED: ReleaseReason
RELEASE_REASON_PREEMPTED: ReleaseReason
RELEASE_REASON_STALE: ReleaseReason
RELEASE_REASON_FAILED: ReleaseReason
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_STOP_TOKEN: FinishReason
FINISH_REASON_LENGTH: FinishReason
FINISH_REASON_STOP_STRING: FinishReason
FINISH_REASON_CANCELLED: FinishReason
FINISH_REASON_EXPIRED: FinishReason
FINISH_REASON_ERROR: FinishReason
FINISH_REASON_QUARANTINED: FinishReason
FINISH_REASON_UNFIT: FinishReason
REFUSAL_REASON_UNSPECIFIED: RefusalReason
REFUSAL_REASON_NO_FREE_BLOCK: RefusalReason
REFUSAL_REASON_UNKNOWN_HANDLE: RefusalReason
REFUSAL_REASON_DUPLICATE_HANDLE: RefusalReason
REFUSAL_REASON_BAD_ADMISSION: RefusalReason
REFUSAL_REASON_FAILED: RefusalReason
REFUSAL_REASON_SEQUENCE_CAP: RefusalReason

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ProtocolRange(_message.Message):
    __slots__ = ("min", "max")
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    min: int
    max: int
    def __init__(self, min: _Optional[int] = ..., max: _Optional[int] = ...) -> None: ...

class WorkerDescription(_message.Message):
    __slots__ = ("protocol", "incarnation", "name", "model", "fingerprint", "dtype", "device", "block_size", "num_blocks", "max_model_tokens", "logits_width", "eos_token_ids", "max_step_tokens", "max_sequences")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LOGITS_WIDTH_FIELD_NUMBER: _ClassVar[int]
    EOS_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    MAX_STEP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    protocol: ProtocolRange
    incarnation: str
    name: str
    model: str
    fingerprint: str
    dtype: str
    device: str
    block_size: int
    num_blocks: int
    max_model_tokens: int
    logits_width: int
    eos_token_ids: _containers.RepeatedScalarFieldContainer[int]
    max_step_tokens: int
    max_sequences: int
    def __init__(self, protocol: _Optional[_Union[ProtocolRange, _Mapping]] = ..., incarnation: _Optional[str] = ..., name: _Optional[str] = ..., model: _Optional[str] = ..., fingerprint: _Optional[str] = ..., dtype: _Optional[str] = ..., device: _Optional[str] = ..., block_size: _Optional[int] = ..., num_blocks: _Optional[int] = ..., max_model_tokens: _Optional[int] = ..., logits_width: _Optional[int] = ..., eos_token_ids: _Optional[_Iterable[int]] = ..., max_step_tokens: _Optional[int] = ..., max_sequences: _Optional[int] = ...) -> None: ...

class GetTokenizerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FileChunk(_message.Message):
    __slots__ = ("path", "data", "last", "sha256")
    PATH_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    path: str
    data: bytes
    last: bool
    sha256: bytes
    def __init__(self, path: _Optional[str] = ..., data: _Optional[bytes] = ..., last: _Optional[bool] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class WatchStatsRequest(_message.Message):
    __slots__ = ("interval_ms",)
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    interval_ms: int
    def __init__(self, interval_ms: _Optional[int] = ...) -> None: ...

class BlockCounts(_message.Message):
    __slots__ = ("total", "free", "cached", "held")
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    CACHED_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    total: int
    free: int
    cached: int
    held: int
    def __init__(self, total: _Optional[int] = ..., free: _Optional[int] = ..., cached: _Optional[int] = ..., held: _Optional[int] = ...) -> None: ...

class MemoryStats(_message.Message):
    __slots__ = ("process_bytes", "kv_bytes", "device_used_bytes", "device_total_bytes", "device_reserved_bytes")
    PROCESS_BYTES_FIELD_NUMBER: _ClassVar[int]
    KV_BYTES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_RESERVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    process_bytes: int
    kv_bytes: int
    device_used_bytes: int
    device_total_bytes: int
    device_reserved_bytes: int
    def __init__(self, process_bytes: _Optional[int] = ..., kv_bytes: _Optional[int] = ..., device_used_bytes: _Optional[int] = ..., device_total_bytes: _Optional[int] = ..., device_reserved_bytes: _Optional[int] = ...) -> None: ...

class WorkerStats(_message.Message):
    __slots__ = ("incarnation", "epoch", "driver", "last_step_id", "running_step_id", "running_step_age_ms", "num_sequences", "blocks", "memory", "num_steps", "num_sampled_tokens")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_ID_FIELD_NUMBER: _ClassVar[int]
    RUNNING_STEP_ID_FIELD_NUMBER: _ClassVar[int]
    RUNNING_STEP_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    NUM_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    NUM_STEPS_FIELD_NUMBER: _ClassVar[int]
    NUM_SAMPLED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    epoch: int
    driver: str
    last_step_id: int
    running_step_id: int
    running_step_age_ms: int
    num_sequences: int
    blocks: BlockCounts
    memory: MemoryStats
    num_steps: int
    num_sampled_tokens: int
    def __init__(self, incarnation: _Optional[str] = ..., epoch: _Optional[int] = ..., driver: _Optional[str] = ..., last_step_id: _Optional[int] = ..., running_step_id: _Optional[int] = ..., running_step_age_ms: _Optional[int] = ..., num_sequences: _Optional[int] = ..., blocks: _Optional[_Union[BlockCounts, _Mapping]] = ..., memory: _Optional[_Union[MemoryStats, _Mapping]] = ..., num_steps: _Optional[int] = ..., num_sampled_tokens: _Optional[int] = ...) -> None: ...

class DriverMessage(_message.Message):
    __slots__ = ("hello", "plan", "heartbeat")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    YIELD_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    plan: BatchPlan
    heartbeat: DriverHeartbeat
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., plan: _Optional[_Union[BatchPlan, _Mapping]] = ..., heartbeat: _Optional[_Union[DriverHeartbeat, _Mapping]] = ..., **kwargs) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "replica_id")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    protocol: ProtocolRange
    replica_id: str
    def __init__(self, protocol: _Optional[_Union[ProtocolRange, _Mapping]] = ..., replica_id: _Optional[str] = ...) -> None: ...

class DriverHeartbeat(_message.Message):
    __slots__ = ("durable_step",)
    DURABLE_STEP_FIELD_NUMBER: _ClassVar[int]
    durable_step: int
    def __init__(self, durable_step: _Optional[int] = ...) -> None: ...

class Yield(_message.Message):
    __slots__ = ("reason", "forget")
    REASON_FIELD_NUMBER: _ClassVar[int]
    FORGET_FIELD_NUMBER: _ClassVar[int]
    reason: str
    forget: bool
    def __init__(self, reason: _Optional[str] = ..., forget: _Optional[bool] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("counter", "nonce")
    COUNTER_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    counter: int
    nonce: int
    def __init__(self, counter: _Optional[int] = ..., nonce: _Optional[int] = ...) -> None: ...

class Release(_message.Message):
    __slots__ = ("handle", "reason")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    handle: int
    reason: ReleaseReason
    def __init__(self, handle: _Optional[int] = ..., reason: _Optional[_Union[ReleaseReason, str]] = ...) -> None: ...

class SamplingParams(_message.Message):
    __slots__ = ("temperature", "top_k", "top_p", "min_p", "seed", "child_index")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    CHILD_INDEX_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    child_index: int
    def __init__(self, temperature: _Optional[float] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ..., min_p: _Optional[float] = ..., seed: _Optional[int] = ..., child_index: _Optional[int] = ...) -> None: ...

class StopRules(_message.Message):
    __slots__ = ("max_tokens", "min_tokens", "stop_token_ids")
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MIN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STOP_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    max_tokens: int
    min_tokens: int
    stop_token_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, max_tokens: _Optional[int] = ..., min_tokens: _Optional[int] = ..., stop_token_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Admission(_message.Message):
    __slots__ = ("request_id", "assignment", "handle", "token_ids", "num_prompt_tokens", "sampling", "stop", "cache_salt")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    NUM_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    assignment: Assignment
    handle: int
    token_ids: bytes
    num_prompt_tokens: int
    sampling: SamplingParams
    stop: StopRules
    cache_salt: bytes
    def __init__(self, request_id: _Optional[str] = ..., assignment: _Optional[_Union[Assignment, _Mapping]] = ..., handle: _Optional[int] = ..., token_ids: _Optional[bytes] = ..., num_prompt_tokens: _Optional[int] = ..., sampling: _Optional[_Union[SamplingParams, _Mapping]] = ..., stop: _Optional[_Union[StopRules, _Mapping]] = ..., cache_salt: _Optional[bytes] = ...) -> None: ...

class BatchPlan(_message.Message):
    __slots__ = ("epoch", "step_id", "durable_step", "release", "admit", "chunk_handles", "chunk_max_tokens", "predicted_ns")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    DURABLE_STEP_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    ADMIT_FIELD_NUMBER: _ClassVar[int]
    CHUNK_HANDLES_FIELD_NUMBER: _ClassVar[int]
    CHUNK_MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_NS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    step_id: int
    durable_step: int
    release: _containers.RepeatedCompositeFieldContainer[Release]
    admit: _containers.RepeatedCompositeFieldContainer[Admission]
    chunk_handles: bytes
    chunk_max_tokens: bytes
    predicted_ns: int
    def __init__(self, epoch: _Optional[int] = ..., step_id: _Optional[int] = ..., durable_step: _Optional[int] = ..., release: _Optional[_Iterable[_Union[Release, _Mapping]]] = ..., admit: _Optional[_Iterable[_Union[Admission, _Mapping]]] = ..., chunk_handles: _Optional[bytes] = ..., chunk_max_tokens: _Optional[bytes] = ..., predicted_ns: _Optional[int] = ...) -> None: ...

class ResidentSequence(_message.Message):
    __slots__ = ("request_id", "assignment", "handle", "num_prompt_tokens", "num_computed_tokens", "output_ids", "finish", "num_held_blocks")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    NUM_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_COMPUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_IDS_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    NUM_HELD_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    assignment: Assignment
    handle: int
    num_prompt_tokens: int
    num_computed_tokens: int
    output_ids: bytes
    finish: FinishReason
    num_held_blocks: int
    def __init__(self, request_id: _Optional[str] = ..., assignment: _Optional[_Union[Assignment, _Mapping]] = ..., handle: _Optional[int] = ..., num_prompt_tokens: _Optional[int] = ..., num_computed_tokens: _Optional[int] = ..., output_ids: _Optional[bytes] = ..., finish: _Optional[_Union[FinishReason, str]] = ..., num_held_blocks: _Optional[int] = ...) -> None: ...

class Resident(_message.Message):
    __slots__ = ("protocol", "incarnation", "epoch", "last_step_id", "sequences", "blocks")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    protocol: ProtocolRange
    incarnation: str
    epoch: int
    last_step_id: int
    sequences: _containers.RepeatedCompositeFieldContainer[ResidentSequence]
    blocks: BlockCounts
    def __init__(self, protocol: _Optional[_Union[ProtocolRange, _Mapping]] = ..., incarnation: _Optional[str] = ..., epoch: _Optional[int] = ..., last_step_id: _Optional[int] = ..., sequences: _Optional[_Iterable[_Union[ResidentSequence, _Mapping]]] = ..., blocks: _Optional[_Union[BlockCounts, _Mapping]] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("handle", "reason", "detail")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    handle: int
    reason: RefusalReason
    detail: str
    def __init__(self, handle: _Optional[int] = ..., reason: _Optional[_Union[RefusalReason, str]] = ..., detail: _Optional[str] = ...) -> None: ...

class RowFinish(_message.Message):
    __slots__ = ("handle", "reason")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    handle: int
    reason: FinishReason
    def __init__(self, handle: _Optional[int] = ..., reason: _Optional[_Union[FinishReason, str]] = ...) -> None: ...

class StepTimings(_message.Message):
    __slots__ = ("idle_ns", "prepare_ns", "forward_ns", "sample_ns", "total_ns")
    IDLE_NS_FIELD_NUMBER: _ClassVar[int]
    PREPARE_NS_FIELD_NUMBER: _ClassVar[int]
    FORWARD_NS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_NS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_NS_FIELD_NUMBER: _ClassVar[int]
    idle_ns: int
    prepare_ns: int
    forward_ns: int
    sample_ns: int
    total_ns: int
    def __init__(self, idle_ns: _Optional[int] = ..., prepare_ns: _Optional[int] = ..., forward_ns: _Optional[int] = ..., sample_ns: _Optional[int] = ..., total_ns: _Optional[int] = ...) -> None: ...

class StepResult(_message.Message):
    __slots__ = ("epoch", "step_id", "handles", "num_computed", "num_sampled", "num_cached", "sampled_ids", "first_index", "finishes", "refusals", "blocks", "memory", "timings", "idle_with_work")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    NUM_COMPUTED_FIELD_NUMBER: _ClassVar[int]
    NUM_SAMPLED_FIELD_NUMBER: _ClassVar[int]
    NUM_CACHED_FIELD_NUMBER: _ClassVar[int]
    SAMPLED_IDS_FIELD_NUMBER: _ClassVar[int]
    FIRST_INDEX_FIELD_NUMBER: _ClassVar[int]
    FINISHES_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    IDLE_WITH_WORK_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    step_id: int
    handles: bytes
    num_computed: bytes
    num_sampled: bytes
    num_cached: bytes
    sampled_ids: bytes
    first_index: bytes
    finishes: _containers.RepeatedCompositeFieldContainer[RowFinish]
    refusals: _containers.RepeatedCompositeFieldContainer[Refusal]
    blocks: BlockCounts
    memory: MemoryStats
    timings: StepTimings
    idle_with_work: bool
    def __init__(self, epoch: _Optional[int] = ..., step_id: _Optional[int] = ..., handles: _Optional[bytes] = ..., num_computed: _Optional[bytes] = ..., num_sampled: _Optional[bytes] = ..., num_cached: _Optional[bytes] = ..., sampled_ids: _Optional[bytes] = ..., first_index: _Optional[bytes] = ..., finishes: _Optional[_Iterable[_Union[RowFinish, _Mapping]]] = ..., refusals: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ..., blocks: _Optional[_Union[BlockCounts, _Mapping]] = ..., memory: _Optional[_Union[MemoryStats, _Mapping]] = ..., timings: _Optional[_Union[StepTimings, _Mapping]] = ..., idle_with_work: _Optional[bool] = ...) -> None: ...

class PlanRefused(_message.Message):
    __slots__ = ("step_id", "reason", "detail", "expected_step_id")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_STEP_ID_FIELD_NUMBER: _ClassVar[int]
    step_id: int
    reason: str
    detail: str
    expected_step_id: int
    def __init__(self, step_id: _Optional[int] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ..., expected_step_id: _Optional[int] = ...) -> None: ...

class WorkerHeartbeat(_message.Message):
    __slots__ = ("last_step_id", "running_step_id", "running_step_age_ms")
    LAST_STEP_ID_FIELD_NUMBER: _ClassVar[int]
    RUNNING_STEP_ID_FIELD_NUMBER: _ClassVar[int]
    RUNNING_STEP_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    last_step_id: int
    running_step_id: int
    running_step_age_ms: int
    def __init__(self, last_step_id: _Optional[int] = ..., running_step_id: _Optional[int] = ..., running_step_age_ms: _Optional[int] = ...) -> None: ...

class Fenced(_message.Message):
    __slots__ = ("reason", "driver", "epoch", "protocol")
    REASON_FIELD_NUMBER: _ClassVar[int]
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    reason: str
    driver: str
    epoch: int
    protocol: ProtocolRange
    def __init__(self, reason: _Optional[str] = ..., driver: _Optional[str] = ..., epoch: _Optional[int] = ..., protocol: _Optional[_Union[ProtocolRange, _Mapping]] = ...) -> None: ...

class WorkerMessage(_message.Message):
    __slots__ = ("resident", "step_result", "replay", "heartbeat", "fenced", "plan_refused")
    RESIDENT_FIELD_NUMBER: _ClassVar[int]
    STEP_RESULT_FIELD_NUMBER: _ClassVar[int]
    REPLAY_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    PLAN_REFUSED_FIELD_NUMBER: _ClassVar[int]
    resident: Resident
    step_result: StepResult
    replay: StepResult
    heartbeat: WorkerHeartbeat
    fenced: Fenced
    plan_refused: PlanRefused
    def __init__(self, resident: _Optional[_Union[Resident, _Mapping]] = ..., step_result: _Optional[_Union[StepResult, _Mapping]] = ..., replay: _Optional[_Union[StepResult, _Mapping]] = ..., heartbeat: _Optional[_Union[WorkerHeartbeat, _Mapping]] = ..., fenced: _Optional[_Union[Fenced, _Mapping]] = ..., plan_refused: _Optional[_Union[PlanRefused, _Mapping]] = ...) -> None: ...
