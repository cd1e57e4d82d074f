"""The native door, `tokentide.v1.Generation`."""

import hashlib
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace

import grpc

from scheduler_service.output_stream import FinishedOutput, OutputChunk
from scheduler_service.planning.request import RequestStatus
from scheduler_service.request_spec import RequestSpec
from scheduler_service.serving import Serving
from shared.pb import generation_pb2 as pb
from shared.pb import generation_pb2_grpc
from shared.types import FinishReason
from shared.validation import Capacity, RawRequest
from shared.wire.generation import cause_to_pb, raw_request_from_pb

MAX_DEADLINE_S = 7 * 24 * 3600  # a longer RPC deadline means none


class GenerationServicer(generation_pb2_grpc.GenerationServicer):
    def __init__(
        self,
        serving: Serving,
        capacities: Callable[[], Sequence[Capacity]],
        num_workers: Callable[[], int],
    ) -> None:
        self._serving = serving
        self._capacities = capacities
        self._num_workers = num_workers

    async def Generate(
        self, request: pb.GenerateRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.GenerateChunk]:
        nonce = uuid.uuid4().hex
        raw = _with_deadline(raw_request_from_pb(request), context)
        submitted = await self._serving.submit(raw, payload_hash(request), watch_nonce=nonce)
        request_id, spec = submitted.request_id, submitted.spec
        if not submitted.created:
            await self._serving.watch(request_id, spec, nonce)
        yield _opening_chunk(request_id, spec, self._serving.next_within_ms)
        outputs = self._serving.follow(request_id, spec, start=0, prefix_hash=b"", nonce=nonce)
        async with aclosing(outputs):
            async for output in outputs:
                yield chunk_to_pb(request_id, output)

    async def Submit(
        self, request: pb.GenerateRequest, context: grpc.aio.ServicerContext
    ) -> pb.SubmitReply:
        # The RPC's own deadline bounds this call only: nobody waits for the output here.
        raw = raw_request_from_pb(request)
        submitted = await self._serving.submit(raw, payload_hash(request), watch_nonce=None)
        return pb.SubmitReply(request_id=submitted.request_id, created=submitted.created)

    async def Follow(
        self, request: pb.FollowRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.GenerateChunk]:
        nonce = uuid.uuid4().hex
        spec = await self._serving.spec_of(request.request_id)
        await self._serving.watch(request.request_id, spec, nonce)
        opening = _opening_chunk(request.request_id, spec, self._serving.next_within_ms)
        opening.start_index = request.start_index
        yield opening
        outputs = self._serving.follow(
            request.request_id,
            spec,
            start=request.start_index,
            prefix_hash=request.prefix_hash,
            nonce=nonce,
        )
        async with aclosing(outputs):
            async for output in outputs:
                yield chunk_to_pb(request.request_id, output)

    async def Cancel(
        self, request: pb.CancelRequest, context: grpc.aio.ServicerContext
    ) -> pb.CancelReply:
        await self._serving.cancel(list(request.request_ids))
        return pb.CancelReply()

    async def GetRequest(
        self, request: pb.GetRequestRequest, context: grpc.aio.ServicerContext
    ) -> pb.RequestState:
        spec, found, output = await self._serving.read(request.request_id)
        usage = pb.Usage(
            num_prompt_tokens=len(spec.prompt_ids),
            num_output_tokens=len(output.token_ids),
            num_generated_tokens=found.num_output_tokens,
            num_cached_tokens=max(0, found.num_cached_tokens),
        )
        state = pb.RequestState(
            request_id=request.request_id,
            status=found.status,
            text=output.text,
            token_ids=output.token_ids,
            error=found.error,
            usage=usage,
        )
        if found.status == RequestStatus.FINISHED and found.finish is not None:
            state.finish.CopyFrom(_finish_to_pb(found.finish, found.stop_match, usage))
        return state

    async def ListModels(
        self, request: pb.ListModelsRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListModelsReply:
        model = self._serving.model
        capacities = self._capacities()
        if model is None:
            return pb.ListModelsReply()
        served = pb.Model(
            name=model.name,
            max_model_tokens=max((c.max_model_tokens for c in capacities), default=0),
            max_request_tokens=max((c.max_request_tokens for c in capacities), default=0),
            num_workers=self._num_workers(),
            fingerprint=model.fingerprint,
        )
        return pb.ListModelsReply(models=[served])


def payload_hash(request: pb.GenerateRequest) -> bytes:
    """Over the client's fields as sent: the same id with the same hash is the same request."""
    return hashlib.sha256(request.SerializeToString(deterministic=True)).digest()


def chunk_to_pb(request_id: str, output: OutputChunk) -> pb.GenerateChunk:
    chunk = pb.GenerateChunk(
        request_id=request_id,
        start_index=output.start_index,
        token_ids=output.token_ids,
        text=output.text,
        prefix_hash=output.prefix_hash,
        move=output.must_move,
        next_within_ms=output.next_within_ms,
    )
    if output.end is not None:
        end = output.end
        chunk.finish.CopyFrom(_finish_to_pb(end.finish, end.stop_match, _usage_to_pb(end)))
    return chunk


def _usage_to_pb(end: FinishedOutput) -> pb.Usage:
    return pb.Usage(
        num_prompt_tokens=end.num_prompt_tokens,
        num_output_tokens=end.num_output_tokens,
        num_generated_tokens=end.num_generated_tokens,
        num_cached_tokens=max(0, end.num_cached_tokens),
    )


def _finish_to_pb(finish: FinishReason, stop_match: str, usage: pb.Usage) -> pb.Finish:
    message = pb.Finish(cause=cause_to_pb(finish), usage=usage)
    if finish is FinishReason.STOP_TOKEN:
        message.stop_token_id = int(stop_match)
    elif finish is FinishReason.STOP_STRING:
        message.stop_string = stop_match
    return message


def _opening_chunk(request_id: str, spec: RequestSpec, next_within_ms: int) -> pb.GenerateChunk:
    return pb.GenerateChunk(
        request_id=request_id,
        seed=spec.sampling.seed,
        num_prompt_tokens=len(spec.prompt_ids),
        next_within_ms=next_within_ms,
    )


def _with_deadline(raw: RawRequest, context: grpc.aio.ServicerContext) -> RawRequest:
    """The shorter of the field and the RPC's own deadline."""
    remaining_s = context.time_remaining()
    if remaining_s is None or remaining_s > MAX_DEADLINE_S:
        return raw
    remaining_ms = max(1, int(remaining_s * 1e3))
    if raw.timeout_ms and raw.timeout_ms <= remaining_ms:
        return raw
    return replace(raw, timeout_ms=remaining_ms)
