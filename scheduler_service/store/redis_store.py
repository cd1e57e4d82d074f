"""The store on Redis or Valkey: each call is one function of our library there, atomic.

Keys and layouts are documented in `functions/*.lua`. Knows nothing of grpc, planning or payloads.
"""

import logging
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from redis.exceptions import NoPermissionError, OutOfMemoryError, ResponseError

from scheduler_service.store import codec, doorbells
from scheduler_service.store.connecting import connection_maker, without_password
from scheduler_service.store.interface import (
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
from scheduler_service.store.lane import Argument, Connection, Lane
from scheduler_service.store.library import FunctionLibrary
from scheduler_service.store.limits import StoreLimits
from scheduler_service.store.startup import Durability, check_server
from shared.errors import (
    QueueFull,
    RequestConflict,
    StaleFence,
    StoreRefused,
    StoreRolledBack,
    StoreUnavailable,
)

log = logging.getLogger(__name__)

Item = TypeVar("Item")

# What a client relies on: its request is accepted, its tokens are in the log.
PROMISES = ("submit", "commit")
ACKNOWLEDGE_MS = 1000  # a replica that takes longer has not acknowledged; the call is repeated
MAX_IDS_PER_CALL = 256  # the server does nothing else during a call: long lists are sent in pieces


class RedisStore:
    """Implements `RequestStore`. Open it with `connect`."""

    def __init__(
        self,
        make_connection: Callable[[], Connection],
        prefix: str,
        limits: StoreLimits,
        draw_nonce: Callable[[], int],
        io_timeout_s: float,
    ) -> None:
        self._make_connection = make_connection
        self._prefix = prefix
        self._limits = limits
        self._draw_nonce = draw_nonce
        self._library = FunctionLibrary.read()
        self._waits_for_replica = False  # durability `failover`
        # apart, so that a commit never waits behind a door's calls or a long read
        self._driving = Lane(make_connection, io_timeout_s)
        self._doors = Lane(make_connection, io_timeout_s)
        self._reading = Lane(make_connection, io_timeout_s)

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
        store = cls(make, f"tokentide:{{{pool}}}:", StoreLimits(**limits), draw_nonce, io_timeout_s)
        try:
            await store._open(url, durability)
            yield store
        finally:
            await store.close()

    async def _open(self, url: str, durability: Durability) -> None:
        for lane in (self._driving, self._doors, self._reading):
            lane.start()
        try:
            await check_server(self._driving, durability)
        except StoreUnavailable as error:
            raise StoreUnavailable(f"{without_password(url)}: {error}") from error
        except StoreRefused as error:
            raise StoreRefused(f"{without_password(url)}: {error}") from error
        self._waits_for_replica = durability == "failover"
        await self._load_library(self._driving)
        for lane in (self._driving, self._doors, self._reading):
            lane.has_been_let_in = True

    async def close(self) -> None:
        for lane in (self._driving, self._doors, self._reading):
            await lane.close()

    # Doors.

    async def submit(self, request: NewRequest) -> SubmitOutcome:
        limits = self._limits
        try:
            outcome, *detail = await self._call(
                self._doors,
                "submit",
                self._draw_marker(),
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
            "attach_driver", fence, replica_id, self._draw_marker(), capacity
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
        await self._call(self._driving, "set_strategy", self._draw_marker(), strategy)

    async def attach_pool(self, fingerprint: str) -> None:
        stored = await self._call(self._driving, "attach_pool", self._draw_marker(), fingerprint)
        if stored.decode() != fingerprint:
            raise StoreRefused(
                f"the pool is tied to another model: {stored.decode()}, not {fingerprint}"
            )

    async def reclaim(self, incarnation: str, epoch: int, beat: int) -> tuple[str, ...] | None:
        reply = await self._call(self._driving, "reclaim", incarnation, epoch, beat)
        return None if reply[0] == b"lives" else _requeued(reply)

    async def detach_worker(self, fence: Fence) -> tuple[str, ...]:
        reply = await self._call(self._driving, "detach_worker", fence.incarnation, fence.epoch)
        if reply[0] == b"stale":
            raise _stale(fence)
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
            self._draw_marker(),
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
            map(codec.quarantined, await self._call(self._doors, "list_quarantined", most))
        )

    async def release_quarantined(self, request_ids: Sequence[str]) -> int:
        num = 0
        for ids in _pieces(request_ids):
            num += await self._call(self._doors, "release_quarantined", *ids)
        return num

    def on_connection_lost(self, tell: Callable[[], None]) -> None:
        for lane in (self._driving, self._doors, self._reading):
            lane.on_lost.append(tell)

    def doorbells(self, replica_id: str) -> AsyncIterator[tuple[str, ...]]:
        return doorbells.listen(self._make_connection, self._prefix, replica_id)

    # The way to the server.

    async def _fenced(self, name: str, fence: Fence, *arguments: Argument) -> Sequence[Any]:
        window = self._limits.claim_window
        reply = await self._call(
            self._driving, name, window, fence.incarnation, fence.epoch, *arguments
        )
        if reply[0] == b"stale":
            raise _refusal(fence, *reply[1:])
        rest: Sequence[Any] = reply[1:]
        return rest

    async def _call(self, lane: Lane, name: str, *arguments: Argument) -> Any:
        try:
            reply = await self._call_function(lane, name, arguments)
            if self._waits_for_replica and name in PROMISES:
                await self._wait_for_replica(lane)
            return reply
        except OutOfMemoryError as error:
            if name == "submit":
                raise
            raise StoreUnavailable(f"the store is out of memory: {error}") from error
        except ResponseError as error:
            raise self._as_ours(name, error) from error

    def _as_ours(self, name: str, error: ResponseError) -> Exception:
        """A call that the store refuses: for want of a right, or because of a key that is not of its kind."""
        message = f"the store refuses {name}: {error}"
        if isinstance(error, NoPermissionError) and not self._driving.has_been_let_in:
            return StoreRefused(message)
        log.error("%s", message)
        return StoreUnavailable(message)

    async def _ask(self, lane: Lane, *command: Argument) -> Any:
        """A plain command."""
        try:
            return await lane.call(*command)
        except ResponseError as error:
            raise self._as_ours(str(command[0]), error) from error

    async def _call_function(self, lane: Lane, name: str, arguments: Sequence[Argument]) -> Any:
        command = ("FCALL", self._library.function(name), 1, self._prefix)
        try:
            return await lane.call(*command, self._limits.retention_s, *arguments)
        except ResponseError as error:
            if "Function not found" not in str(error):
                raise
        await self._load_library(lane)  # the server is new, or was flushed; nothing has run
        return await lane.call(*command, self._limits.retention_s, *arguments)

    async def _wait_for_replica(self, lane: Lane) -> None:
        """For all that this connection has written. What was not acknowledged is repeated by the caller, which
        changes nothing where it had happened."""
        if int(await lane.call("WAIT", 1, ACKNOWLEDGE_MS)) < 1:
            raise StoreUnavailable("no replica of the store has acknowledged the write")

    async def _load_library(self, lane: Lane) -> None:
        await lane.call("FUNCTION", "LOAD", "REPLACE", self._library.source)

    def _draw_marker(self) -> str:
        return f"{secrets.randbits(64):016x}"


def _pieces(items: Sequence[Item]) -> list[Sequence[Item]]:
    return [items[i : i + MAX_IDS_PER_CALL] for i in range(0, len(items), MAX_IDS_PER_CALL)]


def _requeued(reply: Sequence[Any]) -> tuple[str, ...]:
    """Empty if it was done before ("gone")."""
    return tuple(sorted(name.decode() for name in reply[1])) if len(reply) > 1 else ()


def _refusal(fence: Fence, stored_epoch: bytes, is_tombstoned: int) -> Exception:
    """A store that knows an older epoch, or none, has lost the one that it granted."""
    if is_tombstoned or (stored_epoch and int(stored_epoch) >= fence.epoch):
        return _stale(fence)
    known = stored_epoch.decode() or "none"
    return StoreRolledBack(f"worker {fence.incarnation}: epoch {fence.epoch}, stored is {known}")


def _stale(fence: Fence) -> StaleFence:
    return StaleFence(f"worker {fence.incarnation}: epoch {fence.epoch} is not current")
