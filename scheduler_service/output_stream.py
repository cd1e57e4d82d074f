"""One client's stream over one reader of a log: ids in, chunks out.

Knows nothing of grpc, the store or how tokens come to be.
"""

import hashlib
from dataclasses import dataclass

from scheduler_service.output_cursor import OutputCursor
from scheduler_service.planning.request import RequestStatus
from scheduler_service.reader import LogEnd, Reader
from scheduler_service.request_spec import RequestSpec
from scheduler_service.text import TextCodec
from shared.errors import (
    DataLoss,
    Draining,
    IndexBeyondLog,
    RequestCancelled,
    RequestExpired,
    RequestFailed,
    RequestNotFound,
    RequestQuarantined,
    RequestUnfit,
)
from shared.types import FinishReason, TokenIds
from shared.wire.columns import pack_u32

HASH_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputChunk:
    """What a client gets at once. `end` only with the last chunk of a finished request."""

    start_index: int
    token_ids: TokenIds
    text: str
    prefix_hash: bytes
    end: "FinishedOutput | None" = None
    must_move: bool = False
    next_within_ms: int = 0  # of a beat: when the next may be expected


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedOutput:
    finish: FinishReason
    stop_match: str
    num_prompt_tokens: int
    num_output_tokens: int  # visible ones
    num_generated_tokens: int
    num_cached_tokens: int


def open_cursor(codec: TextCodec, spec: RequestSpec) -> OutputCursor:
    return OutputCursor(
        codec,
        spec.stop_strings,
        include_stop=spec.include_stop,
        min_tokens=spec.stop.min_tokens,
    )


class OutputStream:
    """One client's stream over one reader: ids in, chunks out."""

    def __init__(self, codec: TextCodec, spec: RequestSpec, reader: Reader) -> None:
        self._spec = spec
        self._reader = reader
        self._cursor = open_cursor(codec, spec)
        self._hash = hashlib.sha256()
        self._held: list[int] = []  # taken from the reader, not yet delivered
        self._passed: list[int] = []  # of what the client has
        self._index = 0

    async def skip_to(self, start: int, prefix_hash: bytes) -> bool:
        """Pass over what the client has. False: not all of it is there yet, and a beat is due; call again.

        Raises IndexBeyondLog, DataLoss.
        """
        if not await self._has_read_to(start):
            return False
        ids, self._passed = self._passed, []
        end = self._reader.end
        if end is not None:
            num_visible = len(ids) if end.visible_tokens < 0 else end.visible_tokens
            self._check_start(start, end, num_visible)
        self._hash.update(pack_u32(ids[:start]))
        if prefix_hash and prefix_hash != self._digest():
            raise DataLoss(f"the log of {self._reader.request_id} has other tokens than delivered")
        self._cursor.skip(ids[:start])
        self._index = start
        self._reader.put_back(ids[start:])
        return True

    async def _has_read_to(self, start: int) -> bool:
        """Ids [0, start) and what came with them are passed; fewer only if the log has ended."""
        reader = self._reader
        while len(self._passed) < start:
            ids = await reader.wait_news()
            self._passed += ids
            if len(self._passed) >= start or reader.end is not None:
                break
            if reader.is_unknown:
                raise RequestNotFound(f"no request {reader.request_id!r}")
            if reader.must_move:
                raise Draining("this replica is draining")
            if not ids:
                return False
        return True

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
                self._check_start(self._index, end, self._cursor.num_releasable_tokens)
                self._raise_unless_finished(end)
            return None
        if end.visible_tokens >= 0:
            self._check_start(self._index, end, end.visible_tokens)
        shown = self._cursor.finish(
            ids, visible_tokens=end.visible_tokens, visible_chars=end.visible_chars
        )
        num_visible = self._index + shown.num_tokens
        return self._chunk(shown.num_tokens, shown.text, end=self._finished(end, num_visible))

    def beat(self, next_within_ms: int) -> OutputChunk:
        """Nothing, but that the stream lives."""
        return OutputChunk(
            start_index=self._index,
            token_ids=(),
            text="",
            prefix_hash=b"",
            next_within_ms=next_within_ms,
        )

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

    def _check_start(self, start: int, end: LogEnd, num_visible: int) -> None:
        """No client has more than was ever visible, however the request has ended.

        But for a log that is known to have lost tokens: that is told instead.
        """
        if start > num_visible and end.status != RequestStatus.DATA_LOSS:
            raise IndexBeyondLog(
                f"start_index {start} is beyond the {num_visible} visible tokens"
                f" of request {self._reader.request_id}, which is {end.status}"
            )

    def _raise_unless_finished(self, end: LogEnd) -> None:
        name = self._reader.request_id
        match end.status:
            case RequestStatus.CANCELLED:
                raise RequestCancelled(f"request {name} was cancelled")
            case RequestStatus.EXPIRED:
                raise RequestExpired(
                    f"request {name}: {end.error or 'it did not finish before its deadline'}"
                )
            case RequestStatus.FAILED if end.finish is FinishReason.UNFIT:
                raise RequestUnfit(f"request {name}: {end.error}")
            case RequestStatus.FAILED:
                raise RequestFailed(f"request {name} failed: {end.error}")
            case RequestStatus.QUARANTINED:
                raise RequestQuarantined(f"request {name} is quarantined: {end.error}")
            case RequestStatus.DATA_LOSS:
                raise DataLoss(f"request {name}: the log and the worker differ")
