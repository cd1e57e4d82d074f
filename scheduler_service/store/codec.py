"""Between the values of `interface` and what the functions take and return.

The Lua files document each layout. Pure; knows nothing of connections.
"""

import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from scheduler_service.store.values import (
    AdoptStatus,
    BatchRecord,
    CommitRow,
    DriverReply,
    LogSlice,
    NewRequest,
    PoolTotals,
    QuarantinedRequest,
    QueueEntry,
    QueueWindow,
    RowStatus,
    RunningRecord,
)
from shared.types import Assignment, FinishReason, TokenIds

ROW_STATUSES = (
    RowStatus.APPENDED,
    RowStatus.REPLAYED,
    RowStatus.GAP,
    RowStatus.STALE,
    RowStatus.DATA_LOSS,
)
ADOPT_STATUSES = {0: AdoptStatus.ADOPTED, 3: AdoptStatus.STALE, 4: AdoptStatus.DATA_LOSS}
FINISHED_STATUS = {
    FinishReason.STOP_TOKEN: "finished",
    FinishReason.LENGTH: "finished",
    FinishReason.STOP_STRING: "finished",
    FinishReason.CANCELLED: "cancelled",
    FinishReason.EXPIRED: "expired",
    FinishReason.ERROR: "failed",
    FinishReason.UNFIT: "failed",
    FinishReason.QUARANTINED: "quarantined",
}
MAX_PRIORITY = 4095  # either side of 0: rank = priority * 2^40 + arrival stays exact in a double

_entry = struct.Struct("<IIIQQIiII")
_length = struct.Struct("<I")
_IS_LITTLE_ENDIAN = sys.byteorder == "little"


def pack_ids(token_ids: TokenIds) -> bytes:
    ids = array("I", token_ids)
    if not _IS_LITTLE_ENDIAN:
        ids.byteswap()
    return ids.tobytes()


def unpack_ids(log: bytes) -> TokenIds:
    ids = array("I", log)
    if not _IS_LITTLE_ENDIAN:
        ids.byteswap()
    return tuple(ids)


def pack_assignment(assignment: Assignment) -> str:
    return f"{assignment.counter}:{assignment.nonce}"


def submit_arguments(request: NewRequest) -> tuple[bytes | str | int, ...]:
    assert abs(request.priority) <= MAX_PRIORITY, (
        f"{request.request_id}: priority {request.priority}"
    )
    watch = request.watch
    assert watch is None or watch.nonce, f"{request.request_id}: a watch without a nonce"
    return (
        request.request_id,
        request.payload_hash,
        request.payload,
        request.priority,
        request.tenant,
        request.num_prompt_tokens,
        request.max_tokens,
        request.timeout_ms,
        *((watch.replica_id, watch.nonce, watch.grace_ms) if watch else ("", "", "")),
        request.queue_timeout_ms,
        request.max_level_requests,
        pack_ids(request.prefix_hashes),
    )


def commit_arguments(rows: Sequence[CommitRow]) -> list[bytes | str | int]:
    arguments: list[bytes | str | int] = [len(rows)]
    extras: list[bytes | str | int] = []
    for number, row in enumerate(rows, start=1):
        arguments += (
            row.request_id,
            pack_assignment(row.assignment),
            row.index,
            pack_ids(row.token_ids),
        )
        if row.finish is not None or row.num_cached_tokens >= 0:
            extras += (number, row.num_cached_tokens, *_finish_arguments(row))
    return arguments + extras


def _finish_arguments(row: CommitRow) -> tuple[str | int, ...]:
    if row.finish is None:
        return ("", "", -1, -1, "", "")
    return (
        row.finish.value,
        FINISHED_STATUS[row.finish],
        row.visible_tokens,
        row.visible_chars,
        row.stop_match,
        row.error,
    )


def driver_reply(reply: Sequence[Any]) -> DriverReply:
    now_ms, marker, write_counter, num_waiting, num_running, num_waiting_tokens = reply[:6]
    entries = tuple(
        _queue_entry(request_id, packed, now_ms)
        for request_id, packed in zip(reply[6], reply[7], strict=True)
    )
    flags = sorted(pairs(reply[8]))
    return DriverReply(
        window=QueueWindow(
            entries=entries,
            num_waiting=num_waiting,
            num_running=num_running,
            num_waiting_tokens=num_waiting_tokens,
            num_unfit=reply[9],
        ),
        cancelled_ids=tuple(request_id for request_id, _ in flags),
        cancel_reasons=tuple(FinishReason(reason) for _, reason in flags),
        marker=marker.decode(),
        write_counter=write_counter,
    )


def _queue_entry(request_id: bytes, packed: bytes, now_ms: int) -> QueueEntry:
    (prompt, output, max_tokens, arrival, deadline, attempts, priority, queue_timeout_ms, size) = (
        _entry.unpack_from(packed)
    )
    tenant_at = _entry.size + size
    return QueueEntry(
        request_id=request_id.decode(),
        priority=priority,
        tenant=packed[tenant_at:].decode(),
        num_prompt_tokens=prompt,
        num_output_tokens=output,
        max_tokens=max_tokens,
        age_ms=now_ms - arrival,
        remaining_ms=deadline - now_ms if deadline else None,
        attempts=attempts,
        queue_timeout_ms=queue_timeout_ms,
        prefix_hashes=unpack_ids(packed[_entry.size : tenant_at]),
    )


def running_record(reply: Sequence[bytes]) -> RunningRecord:
    request_id, assignment, payload, tenant, priority, attempts, batch_id, *rest, log = reply
    payload_hash, num_prompt_tokens, max_tokens, exempt, deadline_ms = rest
    counter, nonce = assignment.split(b" ")[0].split(b":")
    ids = unpack_ids(log)
    return RunningRecord(
        request_id=request_id.decode(),
        assignment=Assignment(int(counter), int(nonce)),
        num_output_tokens=len(ids),
        payload=payload,
        log=ids,
        tenant=tenant.decode(),
        priority=int(priority),
        attempts=int(attempts),
        batch_id=batch_id.decode(),
        payload_hash=payload_hash,
        num_prompt_tokens=int(num_prompt_tokens),
        max_tokens=int(max_tokens),
        is_exempt=exempt == b"1",
        deadline_ms=int(deadline_ms),
    )


def adopt_arguments(record: RunningRecord) -> tuple[bytes | str | int, ...]:
    return (
        record.request_id,
        pack_assignment(record.assignment),
        record.attempts,
        record.payload_hash,
        record.payload,
        record.priority,
        record.tenant,
        record.num_prompt_tokens,
        record.max_tokens,
        int(record.is_exempt),
        record.deadline_ms,
        pack_ids(record.log),
    )


def batch_record(reply: Sequence[bytes]) -> BatchRecord:
    batch_id, settings, size = reply
    return BatchRecord(batch_id=batch_id.decode(), settings=settings.decode(), size=int(size))


def log_slice(request_id: str, reply: Sequence[Any]) -> LogSlice | None:
    if not reply:
        return None
    status, length, log, finish, visible_tokens, visible_chars, stop_match, error, cached = reply
    return LogSlice(
        request_id=request_id,
        status=status.decode(),
        num_output_tokens=length,
        token_ids=unpack_ids(log),
        finish=FinishReason(finish.decode()) if finish else None,
        visible_tokens=int(visible_tokens or -1),
        visible_chars=int(visible_chars or -1),
        stop_match=(stop_match or b"").decode(),
        error=(error or b"").decode(),
        num_cached_tokens=int(cached or 0),
    )


def tells_output(slices: Sequence[Sequence[Any]]) -> bool:
    """Whether a reply of `read_logs` has any token in it, or any request's end."""
    return any(one and (one[2] or one[0] not in (b"waiting", b"running")) for one in slices)


def quarantined(reply: Sequence[Any]) -> QuarantinedRequest:
    request_id, age_ms, tenant, num_prompt_tokens, num_output_tokens, error = reply
    return QuarantinedRequest(
        request_id=request_id.decode(),
        age_ms=age_ms,
        tenant=tenant.decode(),
        num_prompt_tokens=num_prompt_tokens,
        num_output_tokens=num_output_tokens,
        error=error.decode(),
    )


def pool_totals(reply: Sequence[Any]) -> PoolTotals:
    num_waiting, num_running, num_waiting_tokens, beats, strategy, num_unread_tokens = reply[:6]
    marker, write_counter = reply[6:]
    return PoolTotals(
        num_waiting=num_waiting,
        num_running=num_running,
        num_waiting_tokens=num_waiting_tokens,
        replica_beats={name: int(beat) for name, beat in pairs(beats)},
        strategy=strategy.decode(),
        num_unread_tokens=num_unread_tokens,
        marker=marker.decode(),
        write_counter=write_counter,
    )


def pairs(flat: Sequence[bytes]) -> Iterator[tuple[str, str]]:
    for i in range(0, len(flat), 2):
        yield flat[i].decode(), flat[i + 1].decode()


def bell_ids(message: bytes) -> tuple[str, ...]:
    """Request ids, each behind its length."""
    ids = []
    at = 0
    while at < len(message):
        (length,) = _length.unpack_from(message, at)
        at += _length.size
        ids.append(message[at : at + length].decode())
        at += length
    return tuple(ids)
