"""`shared.link.Link` over grpc.aio streams, and the channel options both sides agree on.

The only module of `shared` that knows grpc. Keepalive is the backstop for half-open connections only:
liveness is the session's own heartbeats. `grpc.http2.ping_timeout_ms` is set beside the documented knob,
which alone left a stopped peer unnoticed for 60 s.

What no peer of ours can have sent (bytes that do not parse) ends that stream, with a line that says so.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from shared.errors import MalformedMessage

logger = logging.getLogger(__name__)

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


class Undecodable:
    """Stands for a message that did not parse."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def tolerant(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """The same, but it marks what does not parse: the framework would log a traceback or hide it."""

    def deserialize_or_mark(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError as error:
            return Undecodable(str(error))

    return deserialize_or_mark


class ServerLink(Generic[Out, In]):
    """The server's side of a bidirectional stream.

    Bytes that do not parse end it as INVALID_ARGUMENT. A message that parses and makes no sense is
    the session's to answer: MalformedMessage.
    """

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
            raise ConnectionError(_words(error)) from error

    async def receive(self) -> In | None:
        """Raises MalformedMessage."""
        try:
            message = await self._context.read()
        except _BROKEN:
            return None
        except DecodeError as error:
            self._refuse(f"a message does not parse: {error}")
            return None
        return None if message is grpc.aio.EOF else self._from_pb(message)

    def close(self) -> None:
        """The stream ends when its handler returns."""

    def _refuse(self, reason: str) -> None:
        """The status with which the stream will end."""
        logger.warning("the stream from %s ends: %s", self._context.peer(), reason)
        self._context.set_code(grpc.StatusCode.INVALID_ARGUMENT)
        self._context.set_details(reason)


class ClientLink(Generic[Out, In]):
    """The client's side of a bidirectional stream, whose deserializer is `tolerant`.

    A server that sends what cannot be meant is as good as gone: the call is cancelled.
    """

    def __init__(
        self,
        call: grpc.aio.StreamStreamCall,
        from_pb: Callable[[Any], In],
        to_pb: Callable[[Out], Message],
        *,
        name: str,
    ) -> None:
        """`name`: of the server, for the log."""
        self._call = call
        self._name = name
        self._from_pb = from_pb
        self._to_pb = to_pb

    async def send(self, message: Out) -> None:
        packed = self._to_pb(message)
        try:
            await self._call.write(packed)
        except (*_BROKEN, asyncio.InvalidStateError) as error:
            raise ConnectionError(_words(error)) from error

    async def receive(self) -> In | None:
        try:
            message = await self._call.read()
            if isinstance(message, Undecodable):
                raise MalformedMessage(f"a message does not parse: {message.reason}")
            return None if message is grpc.aio.EOF else self._from_pb(message)
        except _BROKEN:
            return None
        except MalformedMessage as error:
            logger.warning("a stream of %s is given up: %s", self._name, error)
            self._call.cancel()
            return None

    def close(self) -> None:
        self._call.cancel()


def _words(error: Exception) -> str:
    """On one line: what grpc prints of an error takes several."""
    details = error.details() if isinstance(error, grpc.aio.AioRpcError) else None
    return " ".join((details or str(error)).split())
