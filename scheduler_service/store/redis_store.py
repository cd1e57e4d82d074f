"""The store on Redis or Valkey: each call is one function of our library there, atomic.

Keys and layouts are documented in `functions/*.lua`. Knows nothing of grpc, planning or payloads.
"""

import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from redis.exceptions import OutOfMemoryError

from scheduler_service.store import codec, doorbells
from scheduler_service.store.calls import StoreCalls, stale
from scheduler_service.store.connecting import connection_maker
from scheduler_service.store.lane import Argument, Connection
from scheduler_service.store.limits import StoreLimits
from scheduler_service.store.startup import Durability
from scheduler_service.store.values import (
    AdoptOutcome,
    AttachOutcome,
    BatchStart,
    ClaimOutcome,
    CommitOutcome,
    CommitRow,
    DriverReply,
    Fence,
    LogSlice,
    NewRequest,
    PoolTotals,
    QuarantinedRequest,
    RunningRecord,
    SubmitOutcome,
    Watch,
)
from shared.errors import (
    QueueFull,
    RequestConflict,
    StoreRefused,
)

Item = TypeVar("Item")

MAX_IDS_PER_CALL = 256  # the server does nothing else during a call: long lists are sent in pieces


class RedisStore:
    """Implements `RequestStore`. Open it with `connect`."""

    def __init__(
        self,
        calls: StoreCalls,
        make_connection: Callable[[], Connection],
        limits: StoreLimits,
        draw_nonce: Callable[[], int],
    ) -> None:
        self._calls = calls
        self._call, self._ask, self._fenced = calls.call, calls.ask, calls.fenced
        self._driving, self._doors, self._reading = calls.lanes
        self._prefix = calls.prefix
        self._make_connection = make_connection
        self._limits = limits
        self._draw_nonce = draw_nonce

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        url: str,
        *,
        pool: str = "default",
        durability: Durability = "power",
        io_timeout_s: float = 5.0,
        draw_nonce: Callable[[], int] = lambda: secrets.randbits(64),
        **limits: int,
    ) -> AsyncIterator["RedisStore"]:
        """`limits`: the fields of StoreLimits. Raises StoreRefused if this server cannot keep
        `durability`, StoreUnavailable if it does not answer."""
        if not pool or set(pool) & set("{}"):
            raise StoreRefused(f"a pool's name is not empty and has no braces, got {pool!r}")
        make = connection_maker(url, io_timeout_s=io_timeout_s)
        bounds = StoreLimits(**limits)
        calls = StoreCalls(make, f"tokentide:{{{pool}}}:", bounds, io_timeout_s)
        try:
            await calls.open(url, durability)
            yield cls(calls, make, bounds, draw_nonce)
        finally:
            await calls.close()

    async def close(self) -> None:
        await self._calls.close()

    # Doors.

    async def submit(self, request: NewRequest) -> SubmitOutcome:
        limits = self._limits
        try:
            outcome, *detail = await self._call(
                self._doors,
                "submit",
                _draw_marker(),
                limits.max_queued_requests,
                limits.max_queued_tokens,
                limits.watch_lease_ms,
                *codec.submit_arguments(request),
            )
        except OutOfMemoryError as error:
            raise QueueFull("the store has no memory for more requests") from error
        if outcome == b"conflict":
            raise RequestConflict(f"{request.request_id} is taken by a request with other fields")
        if outcome == b"full":
            raise QueueFull(f"the queue is full: {detail[0]} requests, {detail[1]} tokens wait")
        return SubmitOutcome(created=outcome == b"created", payload=detail[0])

    async def cancel(self, request_ids: Sequence[str]) -> None:
        for ids in _pieces(request_ids):
            await self._call(self._doors, "cancel", *ids)

    async def watch(self, request_id: str, watch: Watch) -> bool:
        reply = await self._call(
            self._doors,
            "watch",
            self._limits.watch_lease_ms,
            request_id,
            watch.replica_id,
            watch.nonce,
            watch.grace_ms,
        )
        return bool(reply)

    async def refresh_watches(self, replica_id: str, watches: Sequence[tuple[str, str]]) -> None:
        for piece in _pieces(watches):
            flat = [part for pair in piece for part in pair]
            lease_ms = self._limits.watch_lease_ms
            await self._call(self._doors, "refresh_watches", lease_ms, replica_id, *flat)

    async def unwatch(self, request_id: str, nonce: str) -> None:
        lease_ms = self._limits.watch_lease_ms
        await self._call(self._doors, "unwatch", lease_ms, request_id, nonce)

    async def read_logs(self, starts: Sequence[tuple[str, int]]) -> tuple[LogSlice | None, ...]:
        slices: list[LogSlice | None] = []
        for piece in _pieces(starts):
            flat = [part for pair in piece for part in pair]
            reply = await self._call(self._reading, "read_logs", *flat)
            slices += [
                codec.log_slice(pair[0], one) for pair, one in zip(piece, reply, strict=True)
            ]
        return tuple(slices)

    async def read_payload(self, request_id: str) -> bytes | None:
        key = f"{self._prefix}request:{request_id}"
        payload: bytes | None = await self._ask(self._reading, "HGET", key, "payload")
        return payload

    # Drivers.

    async def attach_driver(self, fence: Fence, replica_id: str, capacity: int) -> AttachOutcome:
        reply, records, batches = await self._fenced(
            "attach_driver", fence, replica_id, _draw_marker(), capacity
        )
        running = sorted(map(codec.running_record, records), key=lambda record: record.request_id)
        return AttachOutcome(
            running=tuple(running),
            batches=tuple(sorted(map(codec.batch_record, batches), key=lambda b: b.batch_id)),
            reply=codec.driver_reply(reply),
        )

    async def poll(self, fence: Fence) -> DriverReply:
        (reply,) = await self._fenced("poll", fence)
        return codec.driver_reply(reply)

    async def claim(
        self,
        fence: Fence,
        request_ids: Sequence[str],
        at_least: int = 1,
        batch: BatchStart | None = None,
    ) -> ClaimOutcome:
        arguments: list[Argument] = [at_least, "", "", 0]
        if batch is not None:
            arguments[1:] = batch.batch_id, batch.settings, int(batch.is_held)
        for request_id in dict.fromkeys(request_ids):
            arguments += (request_id, self._draw_nonce())
        reply, records = await self._fenced("claim", fence, *arguments)
        return ClaimOutcome(
            claimed=tuple(map(codec.running_record, records)), reply=codec.driver_reply(reply)
        )

    async def commit(self, fence: Fence, rows: Sequence[CommitRow]) -> CommitOutcome:
        reply, statuses, lengths = await self._fenced(
            "commit", fence, *codec.commit_arguments(rows)
        )
        return CommitOutcome(
            statuses=tuple(codec.ROW_STATUSES[status] for status in statuses),
            lengths=tuple(lengths),
            reply=codec.driver_reply(reply),
        )

    async def requeue(self, fence: Fence, request_ids: Sequence[str]) -> DriverReply:
        (reply,) = await self._fenced("requeue", fence, *request_ids)
        return codec.driver_reply(reply)

    async def reject(self, fence: Fence, request_ids: Sequence[str]) -> DriverReply:
        (reply,) = await self._fenced("reject", fence, *request_ids)
        return codec.driver_reply(reply)

    async def adopt(self, fence: Fence, records: Sequence[RunningRecord]) -> AdoptOutcome:
        statuses: list[str] = []
        for piece in _pieces(records) or [()]:
            flat = [argument for record in piece for argument in codec.adopt_arguments(record)]
            reply, codes = await self._fenced("adopt", fence, *flat)
            statuses += [codec.ADOPT_STATUSES[code] for code in codes]
        return AdoptOutcome(statuses=tuple(statuses), reply=codec.driver_reply(reply))

    # Membership.

    async def set_strategy(self, strategy: str) -> None:
        await self._call(self._driving, "set_strategy", _draw_marker(), strategy)

    async def attach_pool(self, fingerprint: str) -> None:
        stored = await self._call(self._driving, "attach_pool", _draw_marker(), fingerprint)
        if stored.decode() != fingerprint:
            raise StoreRefused(
                f"the pool is tied to another model: {stored.decode()}, not {fingerprint};"
                " another model needs another pool (--pool), or an emptied store"
            )

    async def reclaim(self, incarnation: str, epoch: int, beat: int) -> tuple[str, ...] | None:
        reply = await self._call(self._driving, "reclaim", incarnation, epoch, beat)
        return None if reply[0] == b"lives" else _requeued(reply)

    async def detach_worker(self, fence: Fence) -> tuple[str, ...]:
        reply = await self._call(self._driving, "detach_worker", fence.incarnation, fence.epoch)
        if reply[0] == b"stale":
            raise stale(fence)
        return _requeued(reply)

    async def read_worker_beat(self, incarnation: str) -> tuple[int, int] | None:
        reply = await self._call(self._driving, "read_worker_beat", incarnation)
        return (int(reply[0]), int(reply[1])) if reply else None

    async def list_workers(self) -> tuple[str, ...]:
        names = await self._ask(self._driving, "SMEMBERS", f"{self._prefix}workers")
        return tuple(sorted(name.decode() for name in names))

    async def beat(self, replica_id: str) -> PoolTotals:
        limits = self._limits
        reply = await self._call(
            self._driving,
            "beat",
            _draw_marker(),
            replica_id,
            limits.watch_lease_ms,
            limits.outage_ms,
            limits.unfit_timeout_ms,
        )
        return codec.pool_totals(reply)

    async def leave(self, replica_id: str) -> None:
        await self._call(self._driving, "leave", replica_id)

    async def list_quarantined(self, most: int = 100) -> tuple[QuarantinedRequest, ...]:
        return tuple(
            map(
                codec.quarantined,
                await self._call(self._doors, "list_quarantined", most),
            )
        )

    async def release_quarantined(self, request_ids: Sequence[str]) -> int:
        num = 0
        for ids in _pieces(request_ids):
            num += await self._call(self._doors, "release_quarantined", *ids)
        return num

    def on_connection_lost(self, tell: Callable[[], None]) -> None:
        for lane in self._calls.lanes:
            lane.on_lost.append(tell)

    def doorbells(self, replica_id: str) -> AsyncIterator[tuple[str, ...]]:
        return doorbells.listen(self._make_connection, self._prefix, replica_id)


def _pieces(items: Sequence[Item]) -> list[Sequence[Item]]:
    return [items[i : i + MAX_IDS_PER_CALL] for i in range(0, len(items), MAX_IDS_PER_CALL)]


def _requeued(reply: Sequence[Any]) -> tuple[str, ...]:
    """Empty if it was done before ("gone")."""
    return tuple(sorted(name.decode() for name in reply[1])) if len(reply) > 1 else ()


def _draw_marker() -> str:
    return f"{secrets.randbits(64):016x}"
