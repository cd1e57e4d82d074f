"""A worker over grpc: `membership.WorkerPort`, and the tokenizer files that it hands out."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc

from scheduler_service.driver_values import WorkerLink
from shared.errors import WorkerGone, WorkerLost
from shared.grpc_link import INTERNAL_CLIENT_OPTIONS, ClientLink, tolerant
from shared.pb import worker_pb2 as pb
from shared.pb import worker_pb2_grpc
from shared.types import WorkerDescription, WorkerStats
from shared.wire.plan import driver_message_to_pb
from shared.wire.result import worker_message_from_pb
from shared.wire.stats import description_from_pb, stats_from_pb

# Opened by hand: with the stub's own deserializer a message that does not parse arrives as None.
DRIVE = "/tokentide.v1.Worker/Drive"
REFUSED = "connection refused"  # what grpc says where no process listens
MAX_TOKENIZER_BYTES = 256 * 1024 * 1024


class WorkerClient:
    def __init__(self, address: str, *, timeout_s: float) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self._channel = grpc.aio.insecure_channel(address, options=INTERNAL_CLIENT_OPTIONS)
        self._stub = worker_pb2_grpc.WorkerStub(self._channel)
        self._open_drive = self._channel.stream_stream(
            DRIVE,
            request_serializer=pb.DriverMessage.SerializeToString,
            response_deserializer=tolerant(pb.WorkerMessage.FromString),
        )

    async def describe(self) -> WorkerDescription:
        try:
            message = await self._stub.Describe(pb.DescribeRequest(), timeout=self._timeout_s)
        except grpc.aio.AioRpcError as error:
            lost = WorkerGone if REFUSED in (error.details() or "").lower() else WorkerLost
            raise lost(error.details() or "no answer") from error
        return description_from_pb(message)

    async def watch_stats(self, interval_s: float) -> AsyncIterator[WorkerStats]:
        call = self._stub.WatchStats(pb.WatchStatsRequest(interval_ms=int(interval_s * 1e3)))
        try:
            async for message in call:
                yield stats_from_pb(message)
        except grpc.aio.AioRpcError as error:
            raise WorkerLost(error.details() or "no answer") from error
        finally:
            call.cancel()  # a dropped call that is not cancelled is never collected

    def drive(self) -> WorkerLink:
        return ClientLink(
            self._open_drive(), worker_message_from_pb, driver_message_to_pb, name=self.address
        )

    async def fetch_tokenizer(self, into: Path) -> None:
        """Write the tokenizer files to a folder, each checked against its hash."""
        call = self._stub.GetTokenizer(pb.GetTokenizerRequest(), timeout=60)
        parts: list[bytes] = []
        try:
            async for chunk in call:
                parts.append(chunk.data)
                if sum(map(len, parts)) > MAX_TOKENIZER_BYTES:
                    raise WorkerLost(f"{chunk.path} is too long")
                if chunk.last:
                    self._write(into, chunk.path, b"".join(parts), chunk.sha256)
                    parts.clear()
        except grpc.aio.AioRpcError as error:
            raise WorkerLost(error.details() or "no answer") from error
        finally:
            call.cancel()

    def _write(self, into: Path, name: str, data: bytes, sha256: bytes) -> None:
        if Path(name).name != name:
            raise WorkerLost(f"{name!r} is no plain file name")
        if hashlib.sha256(data).digest() != sha256:
            raise WorkerLost(f"{name} arrived damaged")
        (into / name).write_bytes(data)

    async def close(self) -> None:
        await self._channel.close(None)
