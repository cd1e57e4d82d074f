"""Drive, worker to driver: resident, step result, replay, heartbeat, fenced, plan refused."""

from shared.errors import MalformedMessage
from shared.pb import worker_pb2 as pb
from shared.types import (
    PROTOCOL_MAX,
    PROTOCOL_MIN,
    Fenced,
    FinishReason,
    PlanRefused,
    Refusal,
    RefusalReason,
    Replay,
    Resident,
    ResidentSequence,
    StepResult,
    StepRow,
    WorkerHeartbeat,
    WorkerMessage,
)
from shared.wire.columns import pack_u32, unpack_columns, unpack_u32
from shared.wire.plan import assignment_from_pb, assignment_to_pb
from shared.wire.stats import (
    blocks_from_pb,
    blocks_to_pb,
    memory_from_pb,
    memory_to_pb,
    timings_from_pb,
    timings_to_pb,
)

_FINISH_TO_PB = {
    FinishReason.STOP_TOKEN: pb.FINISH_REASON_STOP_TOKEN,
    FinishReason.LENGTH: pb.FINISH_REASON_LENGTH,
    FinishReason.STOP_STRING: pb.FINISH_REASON_STOP_STRING,
    FinishReason.CANCELLED: pb.FINISH_REASON_CANCELLED,
    FinishReason.EXPIRED: pb.FINISH_REASON_EXPIRED,
    FinishReason.ERROR: pb.FINISH_REASON_ERROR,
    FinishReason.UNFIT: pb.FINISH_REASON_UNFIT,
    FinishReason.QUARANTINED: pb.FINISH_REASON_QUARANTINED,
}
_FINISH_FROM_PB = {value: key for key, value in _FINISH_TO_PB.items()}
_REFUSAL_TO_PB = {
    RefusalReason.NO_FREE_BLOCK: pb.REFUSAL_REASON_NO_FREE_BLOCK,
    RefusalReason.UNKNOWN_HANDLE: pb.REFUSAL_REASON_UNKNOWN_HANDLE,
    RefusalReason.DUPLICATE_HANDLE: pb.REFUSAL_REASON_DUPLICATE_HANDLE,
    RefusalReason.BAD_ADMISSION: pb.REFUSAL_REASON_BAD_ADMISSION,
    RefusalReason.FAILED: pb.REFUSAL_REASON_FAILED,
    RefusalReason.SEQUENCE_CAP: pb.REFUSAL_REASON_SEQUENCE_CAP,
}
_REFUSAL_FROM_PB = {value: key for key, value in _REFUSAL_TO_PB.items()}


def _resident_sequence_to_pb(sequence: ResidentSequence) -> pb.ResidentSequence:
    message = pb.ResidentSequence(
        request_id=sequence.request_id,
        assignment=assignment_to_pb(sequence.assignment),
        handle=sequence.handle,
        num_prompt_tokens=sequence.num_prompt_tokens,
        num_computed_tokens=sequence.num_computed_tokens,
        output_ids=pack_u32(sequence.output_ids),
        num_held_blocks=sequence.num_held_blocks,
    )
    if sequence.finish is not None:
        message.finish = _FINISH_TO_PB[sequence.finish]
    return message


def _resident_sequence_from_pb(message: pb.ResidentSequence) -> ResidentSequence:
    return ResidentSequence(
        request_id=message.request_id,
        assignment=assignment_from_pb(message.assignment),
        handle=message.handle,
        num_prompt_tokens=message.num_prompt_tokens,
        num_computed_tokens=message.num_computed_tokens,
        output_ids=unpack_u32(message.output_ids),
        num_held_blocks=message.num_held_blocks,
        finish=_FINISH_FROM_PB.get(message.finish),
    )


def resident_to_pb(resident: Resident) -> pb.Resident:
    return pb.Resident(
        protocol=pb.ProtocolRange(min=resident.protocol_min, max=resident.protocol_max),
        incarnation=resident.incarnation,
        epoch=resident.epoch,
        last_step_id=resident.last_step_id,
        sequences=[_resident_sequence_to_pb(s) for s in resident.sequences],
        blocks=blocks_to_pb(resident.blocks),
    )


def resident_from_pb(message: pb.Resident) -> Resident:
    return Resident(
        incarnation=message.incarnation,
        epoch=message.epoch,
        last_step_id=message.last_step_id,
        sequences=tuple(_resident_sequence_from_pb(s) for s in message.sequences),
        blocks=blocks_from_pb(message.blocks),
        protocol_min=message.protocol.min,
        protocol_max=message.protocol.max,
    )


def result_to_pb(result: StepResult) -> pb.StepResult:
    rows = result.rows
    return pb.StepResult(
        epoch=result.epoch,
        step_id=result.step_id,
        handles=pack_u32(r.handle for r in rows),
        num_computed=pack_u32(r.num_computed_tokens for r in rows),
        num_sampled=pack_u32(len(r.sampled_ids) for r in rows),
        num_cached=pack_u32(r.num_cached_tokens for r in rows),
        sampled_ids=pack_u32(token_id for r in rows for token_id in r.sampled_ids),
        first_index=pack_u32(r.first_index for r in rows),
        finishes=[
            pb.RowFinish(handle=r.handle, reason=_FINISH_TO_PB[r.finish])
            for r in rows
            if r.finish is not None
        ],
        refusals=[
            pb.Refusal(handle=r.handle, reason=_REFUSAL_TO_PB[r.reason], detail=r.detail)
            for r in result.refusals
        ],
        blocks=blocks_to_pb(result.blocks),
        memory=memory_to_pb(result.memory),
        timings=timings_to_pb(result.timings),
        idle_with_work=result.idle_with_work,
    )


def _rows_from_pb(message: pb.StepResult) -> tuple[StepRow, ...]:
    columns = unpack_columns(
        message.handles,
        message.num_computed,
        message.num_sampled,
        message.num_cached,
        message.first_index,
    )
    sampled_ids = unpack_u32(message.sampled_ids)
    if sum(columns[2]) != len(sampled_ids):
        raise MalformedMessage(f"step {message.step_id}: sampled ids do not match their counts")
    finishes = {f.handle: _FINISH_FROM_PB.get(f.reason) for f in message.finishes}
    rows: list[StepRow] = []
    start = 0
    for handle, computed, sampled, cached, first_index in zip(*columns, strict=True):
        rows.append(
            StepRow(
                handle=handle,
                num_computed_tokens=computed,
                sampled_ids=sampled_ids[start : start + sampled],
                first_index=first_index,
                num_cached_tokens=cached,
                finish=finishes.get(handle),
            )
        )
        start += sampled
    return tuple(rows)


def _refusal_from_pb(message: pb.Refusal) -> Refusal:
    reason = _REFUSAL_FROM_PB.get(message.reason, RefusalReason.FAILED)
    return Refusal(handle=message.handle, reason=reason, detail=message.detail)


def result_from_pb(message: pb.StepResult) -> StepResult:
    """Raises MalformedMessage."""
    return StepResult(
        epoch=message.epoch,
        step_id=message.step_id,
        rows=_rows_from_pb(message),
        refusals=tuple(_refusal_from_pb(r) for r in message.refusals),
        blocks=blocks_from_pb(message.blocks),
        memory=memory_from_pb(message.memory),
        timings=timings_from_pb(message.timings),
        idle_with_work=message.idle_with_work,
    )


def worker_message_to_pb(message: WorkerMessage) -> pb.WorkerMessage:
    match message:
        case StepResult():
            return pb.WorkerMessage(step_result=result_to_pb(message))
        case WorkerHeartbeat():
            heartbeat = pb.WorkerHeartbeat(
                last_step_id=message.last_step_id,
                running_step_id=message.running_step_id,
                running_step_age_ms=message.running_step_age_ms,
            )
            return pb.WorkerMessage(heartbeat=heartbeat)
        case Resident():
            return pb.WorkerMessage(resident=resident_to_pb(message))
        case Replay():
            return pb.WorkerMessage(replay=result_to_pb(message.result))
        case Fenced():
            protocol = pb.ProtocolRange(min=PROTOCOL_MIN, max=PROTOCOL_MAX)
            fenced = pb.Fenced(
                reason=message.reason,
                driver=message.driver,
                epoch=message.epoch,
                protocol=protocol,
            )
            return pb.WorkerMessage(fenced=fenced)
        case PlanRefused():
            refused = pb.PlanRefused(
                step_id=message.step_id,
                reason=message.reason,
                detail=message.detail,
                expected_step_id=message.expected_step_id,
            )
            return pb.WorkerMessage(plan_refused=refused)


def worker_message_from_pb(message: pb.WorkerMessage) -> WorkerMessage:
    """Raises MalformedMessage."""
    match message.WhichOneof("message"):
        case "step_result":
            return result_from_pb(message.step_result)
        case "heartbeat":
            beat = message.heartbeat
            return WorkerHeartbeat(
                last_step_id=beat.last_step_id,
                running_step_id=beat.running_step_id,
                running_step_age_ms=beat.running_step_age_ms,
            )
        case "resident":
            return resident_from_pb(message.resident)
        case "replay":
            return Replay(result=result_from_pb(message.replay))
        case "fenced":
            fenced = message.fenced
            return Fenced(reason=fenced.reason, driver=fenced.driver, epoch=fenced.epoch)
        case "plan_refused":
            refused = message.plan_refused
            return PlanRefused(
                step_id=refused.step_id,
                reason=refused.reason,
                detail=refused.detail,
                expected_step_id=refused.expected_step_id,
            )
    raise MalformedMessage("a worker message of no kind")
