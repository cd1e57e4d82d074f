"""How far one request's output may be delivered, and where its stop strings end it.

The replica that serves a client and the driver that ends a request use the same class, so that
both see the same text. Knows nothing of the store, of grpc or of time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler_service.stop_strings import StopChecker, StopMatch
from scheduler_service.text import TextCodec


@dataclass(frozen=True, slots=True)
class Delivery:
    """What may be sent now: the next `num_tokens` ids, and text that goes with them."""

    num_tokens: int
    text: str


class OutputCursor:
    """Takes a request's output ids in order and says what of them may be delivered.

    The text delivered with the ids [0, n) is a function of these ids: any replica can go on at n.
    Only `finish` may add text whose id is not delivered (the part of a token before a stop string).
    """

    def __init__(
        self,
        codec: TextCodec,
        stop_strings: Sequence[str] = (),
        *,
        include_stop: bool = False,
        min_tokens: int = 0,
    ) -> None:
        self._codec = codec
        self._detokenizer = codec.detokenizer()
        self._checker = StopChecker(stop_strings, include_stop=include_stop, min_tokens=min_tokens)
        self._ids: list[int] = []
        self._held_text = ""  # text of the pushed ids that is not delivered
        self._num_chars_delivered = 0
        self.num_delivered = 0  # delivered, or skipped

    @property
    def num_tokens(self) -> int:
        """Ids pushed so far."""
        return len(self._ids)

    @property
    def num_releasable_tokens(self) -> int:
        """Of the ids so far, those that may be delivered whatever follows."""
        return self._checker.num_releasable_tokens

    @property
    def match(self) -> StopMatch | None:
        """The stop string that ends this request, if it is complete. Ids after it are ignored."""
        return self._checker.match

    def skip(self, ids: Sequence[int]) -> None:
        """Ids [0, len(ids)) that the client has already: a new cursor, rebuilt from the log."""
        assert self.num_tokens == 0, "only a new cursor can skip"
        self._push(ids)
        self._take(self.num_tokens, self._num_chars_delivered + len(self._held_text))

    def push(self, ids: Sequence[int]) -> Delivery:
        """The next ids of the log -> what may be delivered now."""
        self._push(ids)
        checker = self._checker
        return self._take(checker.num_releasable_tokens, checker.num_releasable_chars)

    def finish(
        self, ids: Sequence[int] = (), *, visible_tokens: int = -1, visible_chars: int = -1
    ) -> Delivery:
        """The log's last ids, with the request's end -> all that may still be delivered.

        -1 = all. With `visible_chars` -1 the text is that of the visible tokens. Give the last ids
        here and not to `push`: what `push` has delivered cannot be taken back.
        """
        if visible_chars < 0 <= visible_tokens:  # the usual end: nothing needs decoding again
            ids = ids[: max(0, visible_tokens - self.num_tokens)]
        self._push(ids)
        if visible_chars < 0 <= visible_tokens < self.num_tokens:
            text = self._codec.decode(self._ids[:visible_tokens])
            self._held_text = text[self._num_chars_delivered :]
        else:
            self._held_text += self._detokenizer.flush()
        all_chars = self._num_chars_delivered + len(self._held_text)
        return self._take(
            self.num_tokens if visible_tokens < 0 else visible_tokens,
            all_chars if visible_chars < 0 else visible_chars,
        )

    def _push(self, ids: Sequence[int]) -> None:
        for token_id in ids:
            piece = self._detokenizer.push_one(token_id)
            self._checker.feed(piece)
            self._held_text += piece
        self._ids.extend(ids)

    def _take(self, tokens: int, chars: int) -> Delivery:
        num_tokens = max(0, min(tokens, self.num_tokens) - self.num_delivered)
        num_chars = max(0, chars - self._num_chars_delivered)
        text, self._held_text = self._held_text[:num_chars], self._held_text[num_chars:]
        self.num_delivered += num_tokens
        self._num_chars_delivered += len(text)
        return Delivery(num_tokens, text)
