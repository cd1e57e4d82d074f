from shared.pb import worker_pb2 as _worker_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StoredRequest(_message.Message):
    __slots__ = ("prompt_ids", "sampling", "stop", "stop_strings", "include_stop", "cache_salt", "cancel_on_disconnect", "disconnect_grace_ms", "model")
    PROMPT_IDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    STOP_STRINGS_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_STOP_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    CANCEL_ON_DISCONNECT_FIELD_NUMBER: _ClassVar[int]
    DISCONNECT_GRACE_MS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    prompt_ids: bytes
    sampling: _worker_pb2.SamplingParams
    stop: _worker_pb2.StopRules
    stop_strings: _containers.RepeatedScalarFieldContainer[str]
    include_stop: bool
    cache_salt: bytes
    cancel_on_disconnect: bool
    disconnect_grace_ms: int
    model: str
    def __init__(self, prompt_ids: _Optional[bytes] = ..., sampling: _Optional[_Union[_worker_pb2.SamplingParams, _Mapping]] = ..., stop: _Optional[_Union[_worker_pb2.StopRules, _Mapping]] = ..., stop_strings: _Optional[_Iterable[str]] = ..., include_stop: _Optional[bool] = ..., cache_salt: _Optional[bytes] = ..., cancel_on_disconnect: _Optional[bool] = ..., disconnect_grace_ms: _Optional[int] = ..., model: _Optional[str] = ...) -> None: ...
