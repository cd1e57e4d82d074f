"""A simulated client's calls to the replicas: what the Generation door does, without protobuf."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from network import SimLink, link_pair

from scheduler_service.output_stream import OutputChunk
from shared.errors import Draining, NoWorker, RequestNotFound, ServingError, StoreUnavailable
from shared.validation import RawRequest
from tokentide.resume import Chunk, Finish, StreamBroken, StreamLost

SILENCE_S = 2.0  # as `Client`: the next beat is due, and a second


async def _within(link: SimLink, limit_s: float) -> Any:
    try:
        async with asyncio.timeout(limit_s):
            return await link.receive()
    except TimeoutError as error:
        raise StreamBroken("the stream fell silent") from error


class SimStreams:
    """`resume.Streams`: a client's calls to the replicas, which may die under them."""

    def __init__(self, cluster: Any, raw: RawRequest) -> None:
        self._cluster = cluster
        self._raw = raw
        self._turn = cluster.rng.randrange(len(cluster.replica_ids))
        self._nonces = (f"{raw.request_id}-{n}" for n in itertools.count())

    def next_replica(self) -> None:
        self._turn += 1

    async def submit_again(self, seed: int | None) -> bool:
        replica = self._replica()
        if replica is None or not replica.life.is_alive:
            return True  # tried again later
        raw = self._raw if seed is None else replace(self._raw, seed=seed)
        with contextlib.suppress(StoreUnavailable, Draining, NoWorker):
            await replica.serving.submit(raw, b"hash", watch_nonce=next(self._nonces))
        return True

    def _replica(self) -> Any:
        names = self._cluster.replica_ids
        return self._cluster.replicas.get(names[self._turn % len(names)])

    def generate(self) -> AsyncIterator[Chunk]:
        return self._stream(None, 0, b"")

    def follow(self, request_id: str, start: int, prefix_hash: bytes) -> AsyncIterator[Chunk]:
        return self._stream(request_id, start, prefix_hash)

    async def _stream(
        self, request_id: str | None, start: int, prefix_hash: bytes
    ) -> AsyncIterator[Chunk]:
        replica = self._replica()
        await self._cluster.delay()
        if replica is None or not replica.life.is_alive:
            raise StreamBroken("nobody answers")
        near, far = link_pair(self._cluster.rng, self._cluster.max_delay_s)
        replica.life.own(far)
        replica.life.spawn(self._serve(replica, far, request_id, start, prefix_hash))
        try:
            while (message := await _within(near, SILENCE_S)) is not None:
                if isinstance(message, ServingError):
                    if isinstance(message, (StoreUnavailable, Draining, NoWorker)):
                        raise StreamBroken(str(message))
                    if isinstance(message, RequestNotFound):
                        raise StreamLost(message)
                    raise message
                yield message
            raise StreamBroken("the replica died")
        finally:
            near.close()

    async def _serve(
        self,
        replica: Any,
        link: SimLink,
        request_id: str | None,
        start: int,
        prefix_hash: bytes,
    ) -> None:
        """What the Generation door does, without protobuf."""
        nonce = next(self._nonces)
        serving = replica.serving
        try:
            if request_id is None:
                submitted = await serving.submit(self._raw, b"hash", watch_nonce=nonce)
                request_id, spec = submitted.request_id, submitted.spec
                self._cluster.auditor.on_accepted(request_id, spec)
                if not submitted.created:
                    await serving.watch(request_id, spec, nonce)
            else:
                spec = await serving.spec_of(request_id)
                await serving.watch(request_id, spec, nonce)
            await link.send(_opening(request_id, start, spec))
            async for output in serving.follow(
                request_id, spec, start=start, prefix_hash=prefix_hash, nonce=nonce
            ):
                await link.send(_chunk(request_id, output))
        except ServingError as error:
            try:
                await link.send(error)
            except ConnectionError:
                return
        except ConnectionError:
            return


def _opening(request_id: str, start: int, spec: Any) -> Chunk:
    return Chunk(request_id=request_id, start_index=start, seed=spec.sampling.seed)


def _chunk(request_id: str, output: OutputChunk) -> Chunk:
    finish = Finish(reason=output.end.finish) if output.end is not None else None
    return Chunk(
        request_id=request_id,
        start_index=output.start_index,
        token_ids=output.token_ids,
        text=output.text,
        finish=finish,
        prefix_hash=output.prefix_hash,
        must_move=output.must_move,
    )
