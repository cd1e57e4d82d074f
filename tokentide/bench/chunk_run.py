"""One trial of a chunk size: from the times of tokens and steps to its figures. Pure arithmetic."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tokentide.bench.statistics import Summary, median


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkTimes:
    """Times are of one clock. A stream is the times at which one decode's tokens came."""

    size: int  # 0: whole prefill
    streams: Sequence[Sequence[float]]
    before_s: float  # when the last decode had begun
    sent_s: float  # the long prompt
    first_token_s: float  # its
    num_prompt_tokens: int
    prompt_steps_s: Sequence[float] = ()  # own times of the steps that computed a chunk of it
    decode_steps_s: Sequence[float] = ()  # of those with all decodes and nothing else
    load_average: Sequence[float] = ()


def chunk_run(times: ChunkTimes) -> dict[str, Any]:
    """A row, but for who made it."""
    before = Summary.of(_gaps(times, times.before_s, times.sent_s, is_inside=True))
    during = Summary.of(_gaps(times, times.sent_s, times.first_token_s, is_inside=False))
    return {
        "chunk_size": times.size or None,
        "gap_before_s": before.as_dict(),
        "gap_during_s": during.as_dict(),
        "ttft_s": times.first_token_s - times.sent_s,
        "num_prompt_steps": len(times.prompt_steps_s),
        **_prefill(times),
        "load_average": list(times.load_average),
    }


def _prefill(times: ChunkTimes) -> dict[str, float | None]:
    """Tokens/s while it was computed, and its own cost: what its steps took beyond pure decode steps."""
    busy_s = sum(times.prompt_steps_s)
    if not busy_s:
        return {"prefill_tokens_per_s": None, "prefill_own_s": None}
    decode_s = median(times.decode_steps_s) if times.decode_steps_s else None
    own_s = None if decode_s is None else busy_s - decode_s * len(times.prompt_steps_s)
    return {"prefill_tokens_per_s": times.num_prompt_tokens / busy_s, "prefill_own_s": own_s}


def _gaps(times: ChunkTimes, start_s: float, end_s: float, *, is_inside: bool) -> Iterator[float]:
    """Gaps inside a span of time, or all that overlap it."""
    for stream in times.streams:
        for earlier, later in pairwise(stream):
            inside = start_s <= earlier and later <= end_s
            if inside or (not is_inside and earlier < end_s and later > start_s):
                yield later - earlier
