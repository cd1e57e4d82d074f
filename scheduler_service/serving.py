"""What every door does with a request: judge, tokenize, submit, follow, cancel, read.

Knows nothing of protobuf or grpc: doors translate. Planning and driving happen elsewhere; this is the
path from a client's fields to the queue, and from the log to a client's chunks.
"""

import asyncio
import hashlib
import secrets
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from scheduler_service.delivery import Delivery, LogEnd, Reader
from scheduler_service.output_cursor import OutputCursor
from scheduler_service.planning.request import RequestStatus
from scheduler_service.request_spec import RequestSpec
from scheduler_service.store.interface import LogSlice, NewRequest, RequestStore, Watch
from scheduler_service.stored_request import spec_from_bytes, spec_to_bytes
from scheduler_service.text import TextCodec, TextPool
from shared.errors import (
    DataLoss,
    Draining,
    IndexBeyondLog,
    ModelNotFound,
    NoWorker,
    RequestCancelled,
    RequestExpired,
    RequestFailed,
    RequestNotFound,
    RequestQuarantined,
)
from shared.types import FinishReason, SamplingParams, StopRules, TokenIds
from shared.wire.columns import pack_u32
from shared.validation import (
    Capacity,
    CheckedRequest,
    RawRequest,
    RequestLimits,
    check_fields,
    check_length,
    check_token_ids,
)

HASH_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """The one model of this pool, as its first worker described it."""

    name: str
    fingerprint: str
    eos_token_ids: TokenIds
    logits_width: int
    codec: TextCodec
    text: TextPool


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    request_id: str
    created: bool
    spec: RequestSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputChunk:
    """What a client gets at once. `end` only with the last chunk of a finished request."""

    start_index: int
    token_ids: TokenIds
    text: str
    prefix_hash: bytes
    end: "FinishedOutput | None" = None
    must_move: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedOutput:
    finish: FinishReason
    stop_match: str
    num_prompt_tokens: int
    num_output_tokens: int  # visible ones
    num_generated_tokens: int
    num_cached_tokens: int


class Serving:
    def __init__(
        self,
        *,
        store: RequestStore,
        delivery: Delivery,
        replica_id: str,
        limits: RequestLimits,
        capacities: Callable[[], Sequence[Capacity]],
    ) -> None:
        self._store = store
        self._delivery = delivery
        self._replica_id = replica_id
        self._limits = limits
        self._capacities = capacities
        self._unwatched: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self.watched: dict[str, str] = {}  # nonce -> request id, of the streams open here
        self.model: ServedModel | None = None
        self.is_draining = False

    # -- in ----------------------------------------------------------------------------------------

    async def submit(
        self, raw: RawRequest, payload_hash: bytes, *, watch_nonce: str | None
    ) -> Submitted:
        """Judge and queue a request. With a nonce, the caller's stream watches it from the start."""
        if self.is_draining:
            raise Draining("this replica is draining")
        model = self._served_model(raw.model)
        checked = check_fields(raw, self._limits)
        prompt_ids = await self._prompt_ids(model, checked)
        check_token_ids(prompt_ids, checked.stop_token_ids, model.logits_width)
        max_tokens = check_length(
            len(prompt_ids),
            checked.max_tokens,
            self._capacities(),
            self._limits,
            checked.min_tokens,
        )
        spec = self._spec(model, checked, prompt_ids, max_tokens)
        request_id = checked.request_id or uuid.uuid4().hex
        outcome = await self._store.submit(
            NewRequest(
                request_id=request_id,
                payload_hash=payload_hash,
                payload=spec_to_bytes(spec),
                priority=checked.priority,
                tenant=checked.tenant,
                num_prompt_tokens=len(prompt_ids),
                max_tokens=max_tokens,
                timeout_ms=checked.timeout_ms,
                watch=self._watch(spec, watch_nonce) if watch_nonce else None,
            )
        )
        stored = spec if outcome.created else spec_from_bytes(outcome.payload)
        return Submitted(request_id=request_id, created=outcome.created, spec=stored)

    def _served_model(self, name: str) -> ServedModel:
        if self.model is None:
            raise NoWorker("no worker has been found yet")
        if name and name != self.model.name:
            raise ModelNotFound(f"model {name!r} is not served here; {self.model.name!r} is")
        return self.model

    async def _prompt_ids(self, model: ServedModel, checked: CheckedRequest) -> TokenIds:
        if checked.prompt_ids is not None:
            return checked.prompt_ids
        return await model.text.encode_prompt(text=checked.text, chat=checked.chat)

    def _spec(
        self, model: ServedModel, checked: CheckedRequest, prompt_ids: TokenIds, max_tokens: int
    ) -> RequestSpec:
        own_stops = () if checked.ignore_eos else model.eos_token_ids
        seed = secrets.randbits(64) if checked.seed is None else checked.seed
        salt = checked.cache_salt or checked.tenant
        return RequestSpec(
            prompt_ids=prompt_ids,
            sampling=SamplingParams(
                temperature=checked.temperature,
                top_k=checked.top_k,
                top_p=checked.top_p,
                min_p=checked.min_p,
                seed=seed,
            ),
            stop=StopRules(
                max_tokens=max_tokens,
                min_tokens=checked.min_tokens,
                stop_token_ids=tuple(sorted({*own_stops, *checked.stop_token_ids})),
            ),
            stop_strings=checked.stop,
            include_stop=checked.include_stop,
            cache_salt=salt.encode(),
            cancel_on_disconnect=not checked.finish_on_disconnect,
            disconnect_grace_ms=checked.disconnect_grace_ms,
            model=model.name,
        )

    def _watch(self, spec: RequestSpec, nonce: str) -> Watch:
        grace_ms = spec.disconnect_grace_ms if spec.cancel_on_disconnect else -1
        return Watch(replica_id=self._replica_id, nonce=nonce, grace_ms=grace_ms)

    # -- out ---------------------------------------------------------------------------------------

    async def spec_of(self, request_id: str) -> RequestSpec:
        payload = await self._store.read_payload(request_id)
        if payload is None:
            raise RequestNotFound(f"no request {request_id!r}")
        return spec_from_bytes(payload)

    async def follow(
        self, request_id: str, spec: RequestSpec, *, start: int, prefix_hash: bytes, nonce: str
    ) -> AsyncIterator[OutputChunk]:
        """The request's chunks from output index `start` on, until it has ended."""
        reader = self._delivery.open(request_id, 0)
        self.watched[nonce] = request_id
        try:
            stream = _OutputStream(self._codec(), spec, reader)
            await stream.skip_to(start, prefix_hash)
            while True:
                chunk = await stream.next_chunk()
                if chunk is not None:
                    yield chunk
                if chunk is not None and (chunk.end is not None or chunk.must_move):
                    return
        finally:
            self._delivery.close(reader)
            self.watched.pop(nonce, None)
            self._unwatched.put_nowait((request_id, nonce))

    async def watch(self, request_id: str, spec: RequestSpec, nonce: str) -> None:
        """A further stream reads this request."""
        if not await self._store.watch(request_id, self._watch(spec, nonce)):
            raise RequestNotFound(f"no request {request_id!r}")

    async def cancel(self, request_ids: Sequence[str]) -> None:
        await self._store.cancel(request_ids)

    async def read(self, request_id: str) -> tuple[RequestSpec, LogSlice, OutputChunk]:
        """Spec, state, and all that is visible now."""
        spec = await self.spec_of(request_id)
        (found,) = await self._store.read_logs([(request_id, 0)])
        if found is None:
            raise RequestNotFound(f"no request {request_id!r}")
        cursor = _cursor(self._codec(), spec)
        if found.status in (RequestStatus.WAITING, RequestStatus.RUNNING):
            shown = cursor.push(found.token_ids)
        else:
            shown = cursor.finish(
                found.token_ids,
                visible_tokens=found.visible_tokens,
                visible_chars=found.visible_chars,
            )
        ids = found.token_ids[: shown.num_tokens]
        chunk = OutputChunk(start_index=0, token_ids=ids, text=shown.text, prefix_hash=b"")
        return spec, found, chunk

    def _codec(self) -> TextCodec:
        if self.model is None:
            raise NoWorker("no worker has been found yet")
        return self.model.codec

    async def run_unwatching(self) -> None:
        """Tell the store of readers that have gone. Never runs in a client's task."""
        while True:
            request_id, nonce = await self._unwatched.get()
            await self._store.unwatch(request_id, nonce)


def _cursor(codec: TextCodec, spec: RequestSpec) -> OutputCursor:
    return OutputCursor(
        codec,
        spec.stop_strings,
        include_stop=spec.include_stop,
        min_tokens=spec.stop.min_tokens,
    )


class _OutputStream:
    """One client's stream over one reader: ids in, chunks out."""

    def __init__(self, codec: TextCodec, spec: RequestSpec, reader: Reader) -> None:
        self._spec = spec
        self._reader = reader
        self._cursor = _cursor(codec, spec)
        self._hash = hashlib.sha256()
        self._held: list[int] = []  # taken from the reader, not yet delivered
        self._index = 0

    async def skip_to(self, start: int, prefix_hash: bytes) -> None:
        """Pass over what the client has. Raises IndexBeyondLog, DataLoss."""
        ids: list[int] = []
        while len(ids) < start:
            if self._reader.is_unknown:
                raise RequestNotFound(f"no request {self._reader.request_id!r}")
            if self._reader.end is not None:
                self._raise_unless_finished(self._reader.end)
                raise IndexBeyondLog(f"start_index {start} is beyond the log's {len(ids)} tokens")
            if self._reader.must_move:
                raise Draining("this replica is draining")
            ids += await self._reader.wait_news()
        self._hash.update(pack_u32(ids[:start]))
        if prefix_hash and prefix_hash != self._digest():
            raise DataLoss(f"the log of {self._reader.request_id} has other tokens than delivered")
        self._cursor.skip(ids[:start])
        self._index = start
        self._reader.put_back(ids[start:])

    async def next_chunk(self) -> OutputChunk | None:
        """Waits for news. None: nothing to be shown came of it. Raises how the request ended."""
        ids = await self._reader.wait_news()
        reader = self._reader
        self._held += ids
        if reader.is_unknown:
            raise RequestNotFound(f"no request {reader.request_id!r} (any more)")
        end = reader.end
        if end is None or end.status != RequestStatus.FINISHED:
            shown = self._cursor.push(ids)
            if shown.num_tokens or shown.text or reader.must_move:
                return self._chunk(shown.num_tokens, shown.text, must_move=reader.must_move)
            if end is not None:
                self._raise_unless_finished(end)
            return None
        shown = self._cursor.finish(
            ids, visible_tokens=end.visible_tokens, visible_chars=end.visible_chars
        )
        num_visible = self._index + shown.num_tokens
        return self._chunk(shown.num_tokens, shown.text, end=self._finished(end, num_visible))

    def _chunk(
        self, num_tokens: int, text: str, end: FinishedOutput | None = None, must_move: bool = False
    ) -> OutputChunk:
        ids, self._held = tuple(self._held[:num_tokens]), self._held[num_tokens:]
        self._hash.update(pack_u32(ids))
        start, self._index = self._index, self._index + num_tokens
        return OutputChunk(
            start_index=start,
            token_ids=ids,
            text=text,
            prefix_hash=self._digest(),
            end=end,
            must_move=must_move,
        )

    def _finished(self, end: LogEnd, num_visible: int) -> FinishedOutput:
        assert end.finish is not None, "a finished request has a reason"
        return FinishedOutput(
            finish=end.finish,
            stop_match=end.stop_match,
            num_prompt_tokens=len(self._spec.prompt_ids),
            num_output_tokens=num_visible,
            num_generated_tokens=self._reader.num_known,
            num_cached_tokens=self._reader.num_cached_tokens,
        )

    def _digest(self) -> bytes:
        return self._hash.copy().digest()[:HASH_BYTES]

    def _raise_unless_finished(self, end: LogEnd) -> None:
        name = self._reader.request_id
        match end.status:
            case RequestStatus.CANCELLED:
                raise RequestCancelled(f"request {name} was cancelled")
            case RequestStatus.EXPIRED:
                raise RequestExpired(f"request {name} did not finish before its deadline")
            case RequestStatus.FAILED:
                raise RequestFailed(f"request {name} failed: {end.error}")
            case RequestStatus.QUARANTINED:
                raise RequestQuarantined(f"request {name} is quarantined: {end.error}")
            case RequestStatus.DATA_LOSS:
                raise DataLoss(f"request {name}: the log and the worker differ")
