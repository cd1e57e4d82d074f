"""RequestSpec <-> the bytes that the store keeps (`StoredRequest`)."""

from scheduler_service.request_spec import RequestSpec
from shared.pb import stored_pb2 as pb
from shared.wire.columns import pack_u32, unpack_u32
from shared.wire.plan import sampling_from_pb, sampling_to_pb, stop_from_pb, stop_to_pb


def spec_to_bytes(spec: RequestSpec) -> bytes:
    message = pb.StoredRequest(
        prompt_ids=pack_u32(spec.prompt_ids),
        sampling=sampling_to_pb(spec.sampling),
        stop=stop_to_pb(spec.stop),
        stop_strings=spec.stop_strings,
        include_stop=spec.include_stop,
        cache_salt=spec.cache_salt,
        cancel_on_disconnect=spec.cancel_on_disconnect,
        disconnect_grace_ms=spec.disconnect_grace_ms,
        model=spec.model,
    )
    return bytes(message.SerializeToString())


def spec_from_bytes(data: bytes) -> RequestSpec:
    message = pb.StoredRequest.FromString(data)
    return RequestSpec(
        prompt_ids=unpack_u32(message.prompt_ids),
        sampling=sampling_from_pb(message.sampling),
        stop=stop_from_pb(message.stop),
        stop_strings=tuple(message.stop_strings),
        include_stop=message.include_stop,
        cache_salt=message.cache_salt,
        cancel_on_disconnect=message.cancel_on_disconnect,
        disconnect_grace_ms=message.disconnect_grace_ms,
        model=message.model,
    )
