"""The Python client: `Client` for asyncio, which goes on when replicas come and go.

Give it several endpoints, or a DNS name with several addresses: a broken stream is opened again at the
next index on another replica.
"""

import asyncio
import random
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, Self

import grpc

from shared.pb import generation_pb2 as pb
from shared.pb import generation_pb2_grpc
from tokentide.errors import TokentideError, error_of, is_retryable
from tokentide.messages import (
    Model,
    Prompt,
    RequestState,
    chunk_from_pb,
    model_from_pb,
    request_message,
    state_from_pb,
)
from tokentide.replicas import Replicas
from tokentide.resume import Chunk, Finish, RetrySettings, StreamBroken, StreamLost, Usage, resuming

CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    # A replica that has stopped without a word before its first one is left after some 9 s.
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.ping_timeout_ms", 3_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)

LATE_S = 1.0  # what a replica has promised may come so late


def _gave_up(error: StreamBroken) -> TokentideError:
    return TokentideError("UNAVAILABLE", str(error))


class Client:
    """`async with Client("localhost:50051,localhost:50151") as client: ...`"""

    def __init__(
        self,
        endpoints: str | Sequence[str] = "localhost:50051",
        *,
        retry: RetrySettings | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        """`timeout_s` bounds the short calls (submit, cancel, get), not streams."""
        names = endpoints.split(",") if isinstance(endpoints, str) else list(endpoints)
        endpoints = [name.strip() for name in names if name.strip()]
        if not endpoints:
            raise ValueError("at least one endpoint is needed")
        for name in endpoints:
            if ":" not in name:
                raise ValueError(f"endpoint {name!r} has no port; write {name}:50051")
        self._retry = retry or RetrySettings()
        self._timeout_s = timeout_s
        self._replicas = Replicas(endpoints, CHANNEL_OPTIONS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._replicas.close()

    async def generate(self, prompt: Prompt, **options: Any) -> AsyncGenerator[Chunk, None]:
        """The request's chunks as they are made.

        A text is taken as it is; for a question to a chat model give messages: [("user", "...")], which are
        rendered with the model's template. Options are the fields of the contract:

        temperature, top_k, top_p, min_p, seed, max_tokens, min_tokens, stop, stop_token_ids, ignore_eos,
        include_stop, priority, tenant, timeout_ms, queue_timeout_ms, on_disconnect ("cancel" or
        "finish"), disconnect_grace_ms, cache_salt, model, request_id. Raises TokentideError. Leaving the iterator
        early cancels the request.
        """
        options.setdefault("request_id", uuid.uuid4().hex)  # so that a retry is the same request
        message = request_message(prompt, options)
        streams = _Streams(self, message)
        chunks = self._resume(streams, None)
        is_over = False
        try:
            async with aclosing(chunks):
                async for chunk in chunks:
                    is_over = chunk.finish is not None
                    yield chunk
                    if is_over:
                        return
        except TokentideError:
            is_over = True
            raise
        except StreamBroken as error:
            raise _gave_up(error) from error
        finally:
            if not is_over:
                await asyncio.shield(self._cancel_quietly(message.request_id))

    async def submit(self, prompt: Prompt, **options: Any) -> str:
        """Queue a request without reading it. Returns its id."""
        options.setdefault("request_id", uuid.uuid4().hex)
        message = request_message(prompt, options)
        reply = await self._call("Submit", message)
        return str(reply.request_id)

    async def follow(
        self, request_id: str, start: int = 0, prefix_hash: bytes = b""
    ) -> AsyncIterator[Chunk]:
        """The chunks of a known request from an output index on."""
        streams = _Streams(self, None)
        chunks = self._resume(streams, request_id, start, prefix_hash)
        try:
            async with aclosing(chunks):
                async for chunk in chunks:
                    yield chunk
        except StreamBroken as error:
            raise _gave_up(error) from error

    async def cancel(self, *request_ids: str) -> None:
        """Unknown, ended and repeated ids are fine."""
        await self._call("Cancel", pb.CancelRequest(request_ids=request_ids))

    async def get(self, request_id: str) -> RequestState:
        """Status, and text and ids so far."""
        state = await self._call("GetRequest", pb.GetRequestRequest(request_id=request_id))
        return state_from_pb(state)

    async def models(self) -> list[Model]:
        """What is served; empty until a worker has been found."""
        reply = await self._call("ListModels", pb.ListModelsRequest())
        return [model_from_pb(model) for model in reply.models]

    # -- streams -----------------------------------------------------------------------------------

    def _resume(
        self,
        streams: "_Streams",
        request_id: str | None,
        start: int = 0,
        prefix_hash: bytes = b"",
    ) -> Any:
        return resuming(
            streams,
            request_id=request_id,
            start=start,
            prefix_hash=prefix_hash,
            settings=self._retry,
            jitter=random.random,
        )

    async def _cancel_quietly(self, request_id: str) -> None:
        try:
            await self._ask("Cancel", pb.CancelRequest(request_ids=[request_id]), timeout_s=5)
        except grpc.aio.AioRpcError:
            return  # its grace time will end it

    async def _call(self, method: str, message: Any) -> Any:
        """A short call, on one replica after the other until one answers."""
        loop = asyncio.get_running_loop()
        started_s, delay_s = loop.time(), self._retry.first_delay_s
        while True:
            try:
                return await self._ask(method, message, timeout_s=self._timeout_s)
            except grpc.aio.AioRpcError as error:
                if not is_retryable(error) or loop.time() - started_s > self._timeout_s:
                    raise error_of(error) from error
            await asyncio.sleep(delay_s * (0.5 + random.random()))
            delay_s = min(2 * delay_s, self._retry.max_delay_s)

    async def _ask(self, method: str, message: Any, *, timeout_s: float) -> Any:
        """One call, on the next replica."""
        replica = await self._replicas.take()
        with replica.in_call() as channel:
            stub = generation_pb2_grpc.GenerationStub(channel)
            return await getattr(stub, method)(message, timeout=timeout_s)


class _Streams:
    """`resume.Streams` over grpc. Each stream that is opened takes the next replica."""

    def __init__(self, client: Client, message: pb.GenerateRequest | None) -> None:
        self._client = client
        self._message = message

    def generate(self) -> AsyncIterator[Chunk]:
        assert self._message is not None, "only a new request is generated"
        return _chunks(self._client._replicas, "Generate", self._message)

    def follow(self, request_id: str, start: int, prefix_hash: bytes) -> AsyncIterator[Chunk]:
        message = pb.FollowRequest(
            request_id=request_id, start_index=start, prefix_hash=prefix_hash
        )
        return _chunks(self._client._replicas, "Follow", message)

    def next_replica(self) -> None:
        """Opening one does it."""

    async def submit_again(self, seed: int | None) -> bool:
        if self._message is None:
            return False
        message = pb.GenerateRequest()
        message.CopyFrom(self._message)
        if seed is not None:
            message.sampling.seed = seed
        try:
            await self._client._call("Submit", message)
        except TokentideError as error:
            # There is one of this id again, with the fields as they were first sent.
            if error.code not in ("ALREADY_EXISTS", "UNAVAILABLE"):
                raise
        return True


async def _chunks(replicas: Replicas, method: str, message: Any) -> AsyncIterator[Chunk]:
    """A stream from the next replica, in our terms."""
    replica = await replicas.take()
    with replica.in_call() as channel:
        call = getattr(generation_pb2_grpc.GenerationStub(channel), method)(message)
        try:
            is_opening, limit_s = True, None
            while True:
                async with asyncio.timeout(limit_s):
                    received = await call.read()
                if received is grpc.aio.EOF:
                    # The status of a failed call; one that ended well has no end of the request.
                    raise StreamBroken("the stream ended early")
                if received.next_within_ms:
                    limit_s = received.next_within_ms / 1e3 + LATE_S
                if received.move:
                    replica.avoid()
                yield chunk_from_pb(received, is_opening)
                is_opening = False
        except TimeoutError as error:
            replica.avoid()
            raise StreamBroken("the stream fell silent") from error
        except grpc.aio.AioRpcError as error:
            if is_retryable(error):
                replica.avoid()
            raise _broken_or_ended(error) from error
        finally:
            call.cancel()  # a dropped call that is not cancelled is never collected


def _broken_or_ended(error: grpc.aio.AioRpcError) -> Exception:
    if is_retryable(error):
        return StreamBroken(error.details() or "")
    if error.code() is grpc.StatusCode.NOT_FOUND:
        return StreamLost(error_of(error))
    return error_of(error)


__all__ = ["Chunk", "Client", "Finish", "Model", "RequestState", "Usage"]
