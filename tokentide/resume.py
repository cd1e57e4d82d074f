"""The client's resume loop: one output, whatever happens to the streams that carry it.

Ordinary async code over injected streams and the loop's clock (I12): no grpc, no time, no randomness of
its own. Indices make it safe: what is there already is dropped, a gap or a changed value is an error.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Protocol

from shared.types import FinishReason, TokenIds


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0  # delivered
    num_generated_tokens: int = 0  # sampled, a withheld stop match included
    num_cached_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    reason: FinishReason
    stop_token_id: int | None = None
    stop_string: str | None = None
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of a request's output. The first one has no tokens: it says that the request is accepted."""

    request_id: str
    start_index: int
    token_ids: TokenIds = ()
    text: str = ""
    finish: Finish | None = None  # only in the last chunk
    prefix_hash: bytes = b""
    must_move: bool = False
    seed: int | None = None  # in the first chunk
    num_prompt_tokens: int | None = None  # in the first chunk

    @property
    def is_beat(self) -> bool:
        """Nothing in it, but that the stream lives."""
        return not (self.token_ids or self.text or self.finish or self.must_move) and (
            self.seed is None
        )


class StreamBroken(Exception):
    """The stream ended without an end of the request: go on elsewhere."""

    def __init__(self, reason: str, *, accepted: bool = True) -> None:
        super().__init__(reason)
        self.accepted = accepted


class StreamLost(StreamBroken):
    """The service knows no such request (any more): its store may have lost it."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error  # what is raised if nobody finds it


class OutputDiffers(Exception):
    """The service sent another token for an index that was delivered, or left one out."""


class Streams(Protocol):
    """Opens streams on one replica after the other. They raise StreamBroken, or what ended the request."""

    def generate(self) -> AsyncIterator[Chunk]: ...
    def follow(self, request_id: str, start: int, prefix_hash: bytes) -> AsyncIterator[Chunk]: ...
    def next_replica(self) -> None: ...
    async def submit_again(self, seed: int | None) -> bool:
        """The same request once more, drawn by the same seed. False: only its submitter can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    first_delay_s: float = 0.05
    max_delay_s: float = 2.0
    give_up_s: float = 600.0  # without any answer for an accepted request
    first_answer_s: float = 15.0  # give up so soon when nobody has ever answered
    lost_s: float = 3.0  # without a trace of the request before it is submitted again


class _Progress:
    """What has been delivered of one request."""

    def __init__(
        self, request_id: str | None, start: int, prefix_hash: bytes, now_s: float
    ) -> None:
        self.request_id = request_id  # None until a stream has said that it is accepted
        self.next_index = start
        self.prefix_hash = prefix_hash
        self.seen_s = now_s  # when the last chunk came
        self.is_accepted = False
        self.seed: int | None = None
        self.lost_since_s: float | None = None
        self.is_finished = False

    def hear(self, chunk: Chunk) -> None:
        self.request_id = chunk.request_id
        self.seen_s = asyncio.get_running_loop().time()
        self.is_accepted = True
        self.seed = chunk.seed if chunk.seed is not None else self.seed
        self.lost_since_s = None
        self.is_finished = chunk.finish is not None

    def fresh(self, chunk: Chunk) -> Chunk | None:
        """The part of a chunk that is new. Raises OutputDiffers on a gap."""
        if not chunk.token_ids:
            return chunk
        num_old = self.next_index - chunk.start_index
        if num_old < 0:
            raise OutputDiffers(f"index {chunk.start_index} came, {self.next_index} was due")
        ids = chunk.token_ids[num_old:]
        if not ids:
            return replace(chunk, start_index=self.next_index, token_ids=(), text="")
        self.next_index += len(ids)
        self.prefix_hash = chunk.prefix_hash or self.prefix_hash
        return replace(chunk, start_index=chunk.start_index + num_old, token_ids=ids)


async def resuming(
    streams: Streams,
    *,
    request_id: str | None,
    start: int = 0,
    prefix_hash: bytes = b"",
    settings: RetrySettings,
    jitter: Callable[[], float],
) -> AsyncGenerator[Chunk, None]:
    """All chunks of one request, each index once. `request_id` None: submit it first.

    `jitter` draws from [0, 1). Gives up with the last StreamBroken after `give_up_s` without progress.
    """
    loop = asyncio.get_running_loop()
    progress = _Progress(request_id, start, prefix_hash, loop.time())
    delay_s = settings.first_delay_s
    while not progress.is_finished:
        seen_s = progress.seen_s
        try:
            async for chunk in _new_chunks(_open(streams, progress), progress):
                yield chunk
        except StreamBroken as broken:
            if isinstance(broken, StreamLost):
                await _find_again(streams, progress, broken, settings.lost_s)
            limit_s = settings.give_up_s if progress.is_accepted else settings.first_answer_s
            if loop.time() - progress.seen_s > limit_s:
                raise
            delay_s = settings.first_delay_s if progress.seen_s > seen_s else delay_s
            await asyncio.sleep(delay_s * (0.5 + jitter()))
            delay_s = min(2 * delay_s, settings.max_delay_s)
        streams.next_replica()


async def _find_again(
    streams: Streams, progress: _Progress, lost: StreamLost, lost_s: float
) -> None:
    """Whoever runs it may give it back to the store; else it is submitted anew, and its output so far
    compared by its hash. Raises what the service said if it is not ours to submit."""
    now_s = asyncio.get_running_loop().time()
    if not progress.is_accepted:
        raise lost.error
    if progress.lost_since_s is None:
        progress.lost_since_s = now_s
    elif now_s - progress.lost_since_s >= lost_s:
        if not await streams.submit_again(progress.seed):
            raise lost.error
        progress.lost_since_s = None


async def _new_chunks(
    stream: AsyncIterator[Chunk], progress: _Progress
) -> AsyncGenerator[Chunk, None]:
    """What one stream brings that is new, until the request has finished or the replica drains."""
    async for chunk in stream:
        is_opening = chunk.seed is not None and progress.is_accepted
        progress.hear(chunk)
        if chunk.is_beat:
            continue
        fresh = None if is_opening else progress.fresh(chunk)
        if fresh is not None and (fresh.token_ids or not fresh.must_move):
            yield fresh
        if progress.is_finished or chunk.must_move:
            return


def _open(streams: Streams, progress: _Progress) -> AsyncIterator[Chunk]:
    if progress.request_id is None:
        return streams.generate()
    return streams.follow(progress.request_id, progress.next_index, progress.prefix_hash)
