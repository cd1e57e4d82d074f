"""Token ids to text, piece by piece, so that the pieces add up to the whole.

Knows nothing of requests or stop strings. It works on `Tokenizer.decode` and not on the library's
DecodeStream, whose window grows without bound (and with it the time per token) while a model
emits tokens without text, and which raises where a decoder rewrites what it said before.
"""

from collections.abc import Callable, Container, Iterable, Sequence

REPLACEMENT = "\ufffd"  # what a decoder says for bytes that are not, or not yet, a character
MAX_HELD_TOKENS = 16  # a character has at most four bytes; more tokens than this are no character


class IncrementalDetokenizer:
    """Text of one growing list of ids.

    What a push returns depends on the ids up to there alone, not on how pushes grouped them: a
    replica that rebuilds it from the log goes on exactly where another one ended.
    """

    def __init__(
        self, decode: Callable[[Sequence[int]], str], without_text: Container[int] = ()
    ) -> None:
        """`without_text`: ids that decode to nothing (special tokens, holes in the vocabulary)."""
        self._decode = decode
        self._without_text = without_text
        # [0, _num_context) context of text that has left, [_num_context, end) held back
        self._window: list[int] = []
        self._num_context = 0
        self._shown = ""  # the part of decode(_window) that has left

    def push(self, ids: Iterable[int]) -> str:
        """The text that these ids complete. The start of an unfinished character is held back."""
        return "".join([self.push_one(token_id) for token_id in ids])

    def push_one(self, token_id: int) -> str:
        if token_id in self._without_text:
            return ""
        self._window.append(token_id)
        text = self._decode(self._window)
        if not text.endswith(REPLACEMENT) and len(text) > len(self._shown):
            return self._show_all(text)
        if len(self._window) - self._num_context > MAX_HELD_TOKENS:
            return self._show_undecodable(text)
        return ""

    def flush(self) -> str:
        """What is still held back when no more ids come. Changes nothing."""
        return self._decode(self._window)[len(self._shown) :]

    def _show_all(self, text: str) -> str:
        new = text[len(self._shown) :]
        # the ids of the newest piece stay as context: some decoders look at what stands before
        self._window = self._window[self._num_context :]
        self._num_context = len(self._window)
        self._shown = self._decode(self._window)
        return new

    def _show_undecodable(self, text: str) -> str:
        """Let go of a long run without a character, up to where no later id can change it."""
        num_tokens = len(self._window)
        for cut in range(num_tokens - 4, num_tokens - 9, -1):
            head = self._decode(self._window[:cut])
            if text == head + self._decode(self._window[cut:]):
                break
        else:
            cut, head = num_tokens, text
        new = head[len(self._shown) :]
        self._window = self._window[cut:]
        self._num_context, self._shown = 0, ""
        return new
