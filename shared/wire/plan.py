"""Drive, driver to worker: hello, plan, heartbeat, yield."""

from shared.errors import MalformedMessage
from shared.pb import worker_pb2 as pb
from shared.types import (
    Admission,
    Assignment,
    BatchPlan,
    Chunk,
    DriverHeartbeat,
    DriverMessage,
    Hello,
    Release,
    ReleaseReason,
    SamplingParams,
    StopRules,
    Yield,
)
from shared.wire.columns import pack_u32, unpack_columns, unpack_u32

_RELEASE_TO_PB = {
    ReleaseReason.FINISHED: pb.RELEASE_REASON_FINISHED,
    ReleaseReason.CANCELLED: pb.RELEASE_REASON_CANCELLED,
    ReleaseReason.PREEMPTED: pb.RELEASE_REASON_PREEMPTED,
    ReleaseReason.STALE: pb.RELEASE_REASON_STALE,
    ReleaseReason.FAILED: pb.RELEASE_REASON_FAILED,
}
_RELEASE_FROM_PB = {value: key for key, value in _RELEASE_TO_PB.items()}


def assignment_to_pb(assignment: Assignment) -> pb.Assignment:
    return pb.Assignment(counter=assignment.counter, nonce=assignment.nonce)


def assignment_from_pb(message: pb.Assignment) -> Assignment:
    return Assignment(message.counter, message.nonce)


def sampling_to_pb(sampling: SamplingParams) -> pb.SamplingParams:
    return pb.SamplingParams(
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        seed=sampling.seed,
        child_index=sampling.child_index,
    )


def sampling_from_pb(message: pb.SamplingParams) -> SamplingParams:
    return SamplingParams(
        temperature=message.temperature,
        top_k=message.top_k,
        top_p=message.top_p,
        min_p=message.min_p,
        seed=message.seed,
        child_index=message.child_index,
    )


def stop_to_pb(stop: StopRules) -> pb.StopRules:
    return pb.StopRules(
        max_tokens=stop.max_tokens, min_tokens=stop.min_tokens, stop_token_ids=stop.stop_token_ids
    )


def stop_from_pb(message: pb.StopRules) -> StopRules:
    return StopRules(
        max_tokens=message.max_tokens,
        min_tokens=message.min_tokens,
        stop_token_ids=tuple(message.stop_token_ids),
    )


def admission_to_pb(admission: Admission) -> pb.Admission:
    return pb.Admission(
        request_id=admission.request_id,
        assignment=assignment_to_pb(admission.assignment),
        handle=admission.handle,
        token_ids=pack_u32(admission.token_ids),
        num_prompt_tokens=admission.num_prompt_tokens,
        sampling=sampling_to_pb(admission.sampling),
        stop=stop_to_pb(admission.stop),
        cache_salt=admission.cache_salt,
    )


def admission_from_pb(message: pb.Admission) -> Admission:
    return Admission(
        request_id=message.request_id,
        assignment=assignment_from_pb(message.assignment),
        handle=message.handle,
        token_ids=unpack_u32(message.token_ids),
        num_prompt_tokens=message.num_prompt_tokens,
        sampling=sampling_from_pb(message.sampling),
        stop=stop_from_pb(message.stop),
        cache_salt=message.cache_salt,
    )


def _release_from_pb(message: pb.Release) -> Release:
    reason = _RELEASE_FROM_PB.get(message.reason)
    if reason is None:
        raise MalformedMessage(f"release of {message.handle}: no reason")
    return Release(handle=message.handle, reason=reason)


def plan_to_pb(plan: BatchPlan) -> pb.BatchPlan:
    return pb.BatchPlan(
        epoch=plan.epoch,
        step_id=plan.step_id,
        durable_step=plan.durable_step,
        release=[
            pb.Release(handle=r.handle, reason=_RELEASE_TO_PB[r.reason]) for r in plan.releases
        ],
        admit=[admission_to_pb(a) for a in plan.admissions],
        chunk_handles=pack_u32(c.handle for c in plan.chunks),
        chunk_max_tokens=pack_u32(c.max_num_tokens for c in plan.chunks),
        predicted_ns=plan.predicted_ns,
    )


def plan_from_pb(message: pb.BatchPlan) -> BatchPlan:
    """Raises MalformedMessage."""
    handles, max_tokens = unpack_columns(message.chunk_handles, message.chunk_max_tokens)
    return BatchPlan(
        epoch=message.epoch,
        step_id=message.step_id,
        durable_step=message.durable_step,
        releases=tuple(_release_from_pb(r) for r in message.release),
        admissions=tuple(admission_from_pb(a) for a in message.admit),
        chunks=tuple(map(Chunk, handles, max_tokens)),
        predicted_ns=message.predicted_ns,
    )


def driver_message_to_pb(message: DriverMessage) -> pb.DriverMessage:
    match message:
        case BatchPlan():
            return pb.DriverMessage(plan=plan_to_pb(message))
        case DriverHeartbeat():
            return pb.DriverMessage(heartbeat=pb.DriverHeartbeat(durable_step=message.durable_step))
        case Hello():
            protocol = pb.ProtocolRange(min=message.protocol_min, max=message.protocol_max)
            return pb.DriverMessage(
                hello=pb.Hello(protocol=protocol, replica_id=message.replica_id)
            )
        case Yield():
            packed = pb.DriverMessage()
            # `yield` is a Python keyword, so the field goes by name.
            given_up = pb.Yield(reason=message.reason, forget=message.forget)
            getattr(packed, "yield").CopyFrom(given_up)
            return packed


def driver_message_from_pb(message: pb.DriverMessage) -> DriverMessage:
    """Raises MalformedMessage."""
    match message.WhichOneof("message"):
        case "plan":
            return plan_from_pb(message.plan)
        case "heartbeat":
            return DriverHeartbeat(durable_step=message.heartbeat.durable_step)
        case "hello":
            return Hello(
                replica_id=message.hello.replica_id,
                protocol_min=message.hello.protocol.min,
                protocol_max=message.hello.protocol.max,
            )
        case "yield":
            given_up = getattr(message, "yield")
            return Yield(reason=given_up.reason, forget=given_up.forget)
    raise MalformedMessage("a driver message of no kind")
