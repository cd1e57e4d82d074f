"""When a request counts as finished, and what of it a client may see.

Knows nothing of text: a stop string's match is a value that somebody else has found.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shared.types import Assignment, FinishReason, StepRow, TokenIds


@dataclass(frozen=True, slots=True, kw_only=True)
class TextStop:
    """A stop string was completed by output token `num_tokens - 1`."""

    stop_string: str
    num_tokens: int
    visible_tokens: int
    visible_chars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """A request's end, written in the same call as its last token."""

    reason: FinishReason
    visible_tokens: int = -1  # -1 = all
    visible_chars: int = -1
    stop_match: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """Output ids of one sequence for its log, and its end where it ends."""

    request_id: str
    assignment: Assignment
    index: int
    token_ids: TokenIds
    end: End | None = None
    num_cached_tokens: int = -1
    is_held: bool = False  # not to be delivered before its batch has ended


def end_of(
    row: StepRow, output_ids: Sequence[int], include_stop: bool, text_stop: TextStop | None
) -> End | None:
    """The first of: stop string, stop token, length. `output_ids` has the row's ids already."""
    if text_stop is not None:
        return End(
            reason=FinishReason.STOP_STRING,
            visible_tokens=text_stop.visible_tokens,
            visible_chars=text_stop.visible_chars,
            stop_match=text_stop.stop_string,
        )
    if row.finish is FinishReason.STOP_TOKEN:
        last = len(output_ids)
        return End(
            reason=FinishReason.STOP_TOKEN,
            visible_tokens=last if include_stop else last - 1,
            stop_match=str(output_ids[-1]),
        )
    if row.finish is not None:
        return End(reason=row.finish)
    return None
