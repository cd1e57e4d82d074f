"""What every door does with a request: judge, tokenize, submit, follow, cancel, read.

Knows nothing of protobuf or grpc: doors translate. Planning and driving happen elsewhere; this is the
path from a client's fields to the queue, and from the log to a client's chunks.
"""

import asyncio
import contextlib
import secrets
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

from scheduler_service.delivery import Delivery
from scheduler_service.output_stream import OutputChunk, OutputStream, open_cursor
from scheduler_service.planning.request import RequestStatus
from scheduler_service.request_spec import RequestSpec
from scheduler_service.store.interface import RequestStore
from scheduler_service.store.values import LogSlice, NewRequest, Watch
from scheduler_service.stored_request import spec_from_bytes, spec_to_bytes
from scheduler_service.text import TextCodec, TextPool
from shared.errors import (
    Draining,
    ModelNotFound,
    NoWorker,
    RequestNotFound,
    StoreUnavailable,
)
from shared.prefixes import prefix_hashes
from shared.strategy import StrategySettings
from shared.types import SamplingParams, StopRules, TokenIds
from shared.validation import (
    Capacity,
    CheckedRequest,
    RawRequest,
    RequestLimits,
    check_fields,
    check_length,
    check_request_id,
    check_request_ids,
    check_token_ids,
)

REWATCH_S = 0.5  # between attempts while the store is away


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


class Serving:
    def __init__(  # noqa: PLR0913 (all that it is wired to)
        self,
        *,
        store: RequestStore,
        delivery: Delivery,
        replica_id: str,
        limits: RequestLimits,
        capacities: Callable[[], Sequence[Capacity]],
        strategy: Callable[[], StrategySettings],
        is_cut_off: Callable[[], bool] = lambda: False,
        draw_seed: Callable[[], int] = lambda: secrets.randbits(64),
    ) -> None:
        """`is_cut_off`: this replica does not reach the store, and others do."""
        self._store = store
        self._delivery = delivery
        self._replica_id = replica_id
        self._limits = limits
        self._capacities = capacities
        self._strategy = strategy
        self._is_cut_off = is_cut_off
        self._draw_seed = draw_seed
        self._unwatched: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self.watched: dict[str, str] = {}  # nonce -> request id, of the streams open here
        self._watches: dict[str, Watch] = {}  # the same, as the store was told
        self._must_rewatch = asyncio.Event()
        store.on_connection_lost(self._must_rewatch.set)
        self.model: ServedModel | None = None
        self.is_draining = False

    # -- in ----------------------------------------------------------------------------------------

    async def submit(
        self, raw: RawRequest, payload_hash: bytes, *, watch_nonce: str | None
    ) -> Submitted:
        """Judge and queue a request. With a nonce, the caller's stream watches it from the start."""
        if self.is_draining:
            raise Draining("this replica is draining")
        self._check_reach()
        model = self._served_model(raw.model)
        checked = check_fields(raw, self._limits)
        prompt_ids = await self._prompt_ids(model, checked)
        # Length first: it bounds the work of looking at each id.
        max_tokens = check_length(
            len(prompt_ids),
            checked.max_tokens,
            self._capacities(),
            self._limits,
            checked.min_tokens,
        )
        check_token_ids(prompt_ids, checked.stop_token_ids, model.logits_width)
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
                queue_timeout_ms=checked.queue_timeout_ms,
                prefix_hashes=prefix_hashes(prompt_ids, spec.cache_salt),
                max_level_requests=self._strategy().queue_policy(checked.priority).max_queue_size,
                watch=self._watch(spec, watch_nonce) if watch_nonce else None,
            )
        )
        stored = spec if outcome.created else spec_from_bytes(outcome.payload)
        return Submitted(request_id=request_id, created=outcome.created, spec=stored)

    def _served_model(self, name: str) -> ServedModel:
        if self.model is None:
            raise NoWorker("no worker that fits this pool has been found yet")
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
        seed = self._draw_seed() if checked.seed is None else checked.seed
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

    def _check_reach(self) -> None:
        """At once, where the store's silence would take seconds."""
        if self._is_cut_off():
            raise StoreUnavailable("this replica does not reach the store, others do")

    # -- out ---------------------------------------------------------------------------------------

    async def spec_of(self, request_id: str) -> RequestSpec:
        check_request_id(request_id)
        self._check_reach()
        payload = await self._store.read_payload(request_id)
        if payload is None:
            raise RequestNotFound(f"no request {request_id!r}")
        return spec_from_bytes(payload)

    async def follow(
        self, request_id: str, spec: RequestSpec, *, start: int, prefix_hash: bytes, nonce: str
    ) -> AsyncGenerator[OutputChunk, None]:
        """The request's chunks from output index `start` on, until it has ended."""
        reader = self._delivery.open(request_id, 0)
        self.watched[nonce] = request_id
        self._watches[nonce] = self._watch(spec, nonce)
        try:
            stream = OutputStream(self._codec(), spec, reader)
            while not await stream.skip_to(start, prefix_hash):
                if reader.take_beat():
                    yield stream.beat(self._delivery.next_within_ms)
            while True:
                chunk = await stream.next_chunk()
                if chunk is None and reader.take_beat():
                    yield stream.beat(self._delivery.next_within_ms)
                if chunk is not None:
                    reader.sent_s = asyncio.get_running_loop().time()
                    yield chunk
                if chunk is not None and (chunk.end is not None or chunk.must_move):
                    return
        finally:
            self._delivery.close(reader)
            self.watched.pop(nonce, None)
            self._watches.pop(nonce, None)
            self._unwatched.put_nowait((request_id, nonce))

    @property
    def next_within_ms(self) -> int:
        """Something comes on each stream within so long."""
        return self._delivery.next_within_ms

    async def watch(self, request_id: str, spec: RequestSpec, nonce: str) -> None:
        """A further stream reads this request."""
        if not await self._store.watch(request_id, self._watch(spec, nonce)):
            raise RequestNotFound(f"no request {request_id!r}")

    async def cancel(self, request_ids: Sequence[str]) -> None:
        check_request_ids(request_ids, self._limits)
        self._check_reach()
        await self._store.cancel(request_ids)

    async def read(self, request_id: str) -> tuple[RequestSpec, LogSlice, OutputChunk]:
        """Spec, state, and all that is visible now."""
        spec = await self.spec_of(request_id)
        (found,) = await self._store.read_logs([(request_id, 0)])
        if found is None:
            raise RequestNotFound(f"no request {request_id!r}")
        cursor = open_cursor(self._codec(), spec)
        if found.status != RequestStatus.FINISHED:  # what was withheld stays so
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
            raise NoWorker("no worker that fits this pool has been found yet")
        return self.model.codec

    async def run_rewatching(self) -> None:
        """Tell a store that may have lost writes of all who read here: a refresh is no use for a watch that it
        does not know."""
        while True:
            await self._must_rewatch.wait()
            self._must_rewatch.clear()
            try:
                for nonce, watch in tuple(self._watches.items()):
                    if nonce in self.watched:
                        await self._store.watch(self.watched[nonce], watch)
            except StoreUnavailable:
                self._must_rewatch.set()
                await asyncio.sleep(REWATCH_S)

    async def run_unwatching(self) -> None:
        """Tell the store of readers that have gone. Never runs in a client's task."""
        while True:
            request_id, nonce = await self._unwatched.get()
            # If the store is away the watch lapses by itself: nobody refreshes it any more.
            with contextlib.suppress(StoreUnavailable):
                await self._store.unwatch(request_id, nonce)
