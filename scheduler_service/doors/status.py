"""Exceptions become gRPC statuses here, for every door: an interceptor, and the rich details it attaches.

A message that does not parse (a string that is no UTF-8) is answered INVALID_ARGUMENT too, where the
framework alone would say INTERNAL.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from shared.errors import GRPC_STATUS, InvalidRequest, MalformedMessage, ServingError
from shared.grpc_link import Undecodable, tolerant

logger = logging.getLogger(__name__)

DOMAIN = "tokentide"
DETAILS_KEY = "grpc-status-details-bin"
RETRY_S = {"UNAVAILABLE": 1, "RESOURCE_EXHAUSTED": 1}
MAX_VIOLATIONS = 16  # trailers should stay below 8 KiB
MAX_MESSAGE_CHARS = 1024


def status_of(error: ServingError) -> grpc.StatusCode:
    for kind in type(error).__mro__:
        name = GRPC_STATUS.get(kind)
        if name is not None:
            return grpc.StatusCode[name]
    return grpc.StatusCode.INTERNAL


def details_of(error: ServingError) -> bytes:
    """A serialized google.rpc.Status with what a program can act on."""
    code = status_of(error)
    details: list[Message] = [
        error_details_pb2.ErrorInfo(reason=type(error).__name__, domain=DOMAIN)
    ]
    if isinstance(error, InvalidRequest):
        bad = error_details_pb2.BadRequest()
        for violation in error.violations[:MAX_VIOLATIONS]:
            bad.field_violations.add(
                field=violation.field, description=violation.description[:MAX_MESSAGE_CHARS]
            )
        details.append(bad)
    if code.name in RETRY_S:
        delay = Duration(seconds=RETRY_S[code.name])
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    status = status_pb2.Status(code=code.value[0], message=_short(error))
    for detail in details:
        packed = AnyMessage()
        packed.Pack(detail)
        status.details.append(packed)
    return bytes(status.SerializeToString())


async def abort(context: grpc.aio.ServicerContext, error: ServingError) -> None:
    await context.abort(
        status_of(error),
        _short(error),
        trailing_metadata=((DETAILS_KEY, details_of(error)),),
    )


def _short(error: Exception) -> str:
    """As ASCII: in metadata other characters take up to twelve bytes each, and 16 KiB is the limit."""
    return str(error).encode("ascii", "backslashreplace").decode()[:MAX_MESSAGE_CHARS]


class StatusInterceptor(grpc.aio.ServerInterceptor):
    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        handler: Any = await continuation(handler_call_details)
        is_ours = handler_call_details.method.startswith(f"/{DOMAIN}.")
        if handler is None or handler.request_streaming or not is_ours:
            return handler  # health and reflection answer for themselves
        guarded = handler._replace(request_deserializer=tolerant(handler.request_deserializer))
        if handler.response_streaming:
            return guarded._replace(unary_stream=_guard_stream(handler.unary_stream))
        return guarded._replace(unary_unary=_guard_unary(handler.unary_unary))


def _check_decoded(request: Any) -> None:
    if isinstance(request, Undecodable):
        raise MalformedMessage(f"the message does not parse (text must be UTF-8): {request.reason}")


def _guard_unary(behavior: Any) -> Any:
    async def guarded(request: Any, context: grpc.aio.ServicerContext) -> Any:
        try:
            _check_decoded(request)
            return await behavior(request, context)
        except Exception as error:
            await _abort_with(context, error)

    return guarded


def _guard_stream(behavior: Any) -> Any:
    async def guarded(request: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
        try:
            _check_decoded(request)
            async for message in behavior(request, context):
                yield message
        except Exception as error:
            await _abort_with(context, error)

    return guarded


async def _abort_with(context: grpc.aio.ServicerContext, error: Exception) -> None:
    """The outermost place: our own mistakes become INTERNAL without their text."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if isinstance(error, ServingError):
        await abort(context, error)
    logger.exception("a call failed", exc_info=error)
    await context.abort(grpc.StatusCode.INTERNAL, "internal error")
