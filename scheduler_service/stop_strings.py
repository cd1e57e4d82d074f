"""Where stop strings end a text, and how much of it may be shown before that is known.

Pure: works on the text of each token, in order, and knows no tokenizer. The rule, which does not
depend on how the text falls into tokens: **the match that completes first wins; of those that
complete at the same character, the longest.** Indices of text are in characters.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StopMatch:
    stop_string: str
    num_tokens: int  # output tokens when the match was complete
    visible_tokens: int  # tokens whose text lies wholly before the match; with include_stop all
    visible_chars: int  # text [0, visible_chars) may be seen: up to the match, or through it


class StopChecker:
    """Reads the text of one token after the other until a stop string is complete.

    A token may be released when its text, and that of all before it, cannot be part of a match.
    Text is released with its token only, so that the text of [0, n) is a function of these n ids,
    and a stream can be continued at any index. Tokens without text wait for the text that follows.
    """

    def __init__(
        self, stop_strings: Sequence[str], *, include_stop: bool = False, min_tokens: int = 0
    ) -> None:
        """No match completes with one of the first `min_tokens` tokens."""
        self._patterns = tuple(_Pattern(stop_string) for stop_string in stop_strings)
        self._include_stop = include_stop
        self._min_tokens = min_tokens
        self._unreleased: deque[tuple[int, int]] = deque()  # (tokens, characters) where a text ends
        self._num_chars = 0
        self.num_tokens = 0
        self.num_releasable_tokens = 0
        self.num_releasable_chars = 0
        self.match: StopMatch | None = None

    def feed(self, piece: str) -> None:
        """The text of the next token; empty if it completes no character. Nothing after a match."""
        if self.match is not None:
            return
        self.num_tokens += 1
        start = self._num_chars
        self._num_chars += len(piece)
        if not self._patterns:
            self.num_releasable_tokens, self.num_releasable_chars = self.num_tokens, self._num_chars
            return
        found = self._advance(piece)
        if piece:
            self._unreleased.append((self.num_tokens, self._num_chars))
        if found is None:
            self._release_before(self._num_chars - max(p.num_matched for p in self._patterns))
        else:
            self._end(found[0], start + found[1])

    def _advance(self, piece: str) -> tuple[str, int] | None:
        """(stop string, characters of the piece through its end): the first complete match."""
        found: tuple[str, int] | None = None
        for pattern in self._patterns:
            end = pattern.advance(piece, may_match=self.num_tokens > self._min_tokens)
            if end is None:
                continue
            if found is None or (end, -len(pattern.text)) < (found[1], -len(found[0])):
                found = pattern.text, end
        return found

    def _release_before(self, num_chars: int) -> None:
        while self._unreleased and self._unreleased[0][1] <= num_chars:
            self.num_releasable_tokens, self.num_releasable_chars = self._unreleased.popleft()

    def _end(self, stop_string: str, end: int) -> None:
        start = end - len(stop_string)
        self._release_before(start)
        include = self._include_stop
        self.match = StopMatch(
            stop_string=stop_string,
            num_tokens=self.num_tokens,
            visible_tokens=self.num_tokens if include else self.num_releasable_tokens,
            visible_chars=end if include else start,
        )


class _Pattern:
    """One stop string and how much of it the text so far ends with (Knuth, Morris, Pratt)."""

    def __init__(self, text: str) -> None:
        assert text, "an empty stop string matches everywhere; validation refuses it"
        self.text = text
        self.num_matched = 0
        self._borders = _borders(text)

    def advance(self, piece: str, *, may_match: bool) -> int | None:
        """Characters of `piece` through the end of the first match in it."""
        if self.num_matched == 0 and self.text[0] not in piece:
            return None
        text, borders, matched = self.text, self._borders, self.num_matched
        for index, char in enumerate(piece):
            while matched and (matched == len(text) or char != text[matched]):
                matched = borders[matched]
            if char == text[matched]:
                matched += 1
            if matched == len(text):
                if may_match:
                    return index + 1
                matched = borders[matched]
        self.num_matched = matched
        return None


def _borders(text: str) -> list[int]:
    """borders[n]: length of the longest proper prefix of text[:n] that is also its suffix."""
    borders = [0, 0]
    for n in range(1, len(text)):
        length = borders[n]
        while length and text[n] != text[length]:
            length = borders[length]
        borders.append(length + 1 if text[n] == text[length] else 0)
    return borders
