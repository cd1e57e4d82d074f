"""`shared.link.Link` over grpc.aio streams, and the channel options both sides agree on.

The only module of `shared` that knows grpc. Keepalive is the backstop for half-open connections only:
liveness is the session's own heartbeats. `grpc.http2.ping_timeout_ms` is set beside the documented knob,
which alone left a stopped peer unnoticed for 60 s.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.message import Message

Out = TypeVar("Out")
In = TypeVar("In")

_BROKEN = (grpc.aio.BaseError, grpc.RpcError, grpc.aio.UsageError)

MAX_MESSAGE_BYTES = 64 * 1024 * 1024

INTERNAL_CLIENT_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 2000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.ping_timeout_ms", 2000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),
)
INTERNAL_SERVER_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.http2.min_ping_interval_without_data_ms", 1000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.ping_timeout_ms", 5000),
)


class ServerLink(Generic[Out, In]):
    """The server's side of a bidirectional stream."""

    def __init__(
        self,
        context: grpc.aio.ServicerContext,
        from_pb: Callable[[Any], In],
        to_pb: Callable[[Out], Message],
    ) -> None:
        self._context = context
        self._from_pb = from_pb
        self._to_pb = to_pb

    async def send(self, message: Out) -> None:
        packed = self._to_pb(message)
        try:
            await self._context.write(packed)
        except _BROKEN as error:
            raise ConnectionError(str(error)) from error

    async def receive(self) -> In | None:
        try:
            message = await self._context.read()
        except _BROKEN:
            return None
        return None if message is grpc.aio.EOF else self._from_pb(message)

    def close(self) -> None:
        """The stream ends when its handler returns."""


class ClientLink(Generic[Out, In]):
    """The client's side of a bidirectional stream."""

    def __init__(
        self,
        call: grpc.aio.StreamStreamCall,
        from_pb: Callable[[Any], In],
        to_pb: Callable[[Out], Message],
    ) -> None:
        self._call = call
        self._from_pb = from_pb
        self._to_pb = to_pb

    async def send(self, message: Out) -> None:
        packed = self._to_pb(message)
        try:
            await self._call.write(packed)
        except (*_BROKEN, asyncio.InvalidStateError) as error:
            raise ConnectionError(str(error)) from error

    async def receive(self) -> In | None:
        try:
            message = await self._call.read()
        except _BROKEN:
            return None
        return None if message is grpc.aio.EOF else self._from_pb(message)

    def close(self) -> None:
        self._call.cancel()
