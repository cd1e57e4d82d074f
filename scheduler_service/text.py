"""Text in and out: chat templates, tokenization in a bounded pool, text of output ids.

Built from the tokenizer files that a worker serves. Knows nothing of torch: it uses the tokenizers
library and transformers' template renderer, not transformers' tokenizer classes, which import it.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from scheduler_service.detokenizer import IncrementalDetokenizer
from shared.errors import FieldViolation, InvalidRequest, ModelUnusable, QueueFull
from shared.types import TokenIds

Messages = Sequence[tuple[str, str]]  # (role, content)

# the files that matter here; a worker may serve more
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
)


class TextCodec:
    """One model's tokenizer and chat template. Safe to use from several threads."""

    def __init__(
        self, tokenizer: Any, chat_template: str | None, special_tokens: Mapping[str, str]
    ) -> None:
        self._tokenizer = tokenizer  # a tokenizers.Tokenizer; the library has no types
        self._chat_template = chat_template
        self._special_tokens = dict(special_tokens)
        self._without_text = _ids_without_text(tokenizer)

    @classmethod
    def load(cls, folder: Path) -> "TextCodec":
        """Read a folder of tokenizer files. Raises ModelUnusable. Blocks for up to a second."""
        from tokenizers import Tokenizer  # noqa: PLC0415 (slow to import)

        # imported here, so that the first chat does not pay for it
        from transformers.utils import chat_template_utils  # noqa: F401, PLC0415

        try:
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            config = _read_json(folder / "tokenizer_config.json")
            special_tokens = _special_tokens(
                {**_read_json(folder / "special_tokens_map.json"), **config}
            )
            template = _read_template(folder, config)
        except Exception as error:  # the library raises bare Exception for a file it cannot read
            raise ModelUnusable(f"{folder}: the tokenizer files cannot be read: {error}") from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return cls(tokenizer, template, special_tokens)

    @property
    def has_chat_template(self) -> bool:
        return self._chat_template is not None

    def render_chat(self, messages: Messages) -> str:
        """A conversation as a prompt, up to where the model answers. Raises InvalidRequest."""
        from transformers.utils.chat_template_utils import render_jinja_template  # noqa: PLC0415

        render: Any = render_jinja_template  # its annotations are wrong: it returns a pair
        if self._chat_template is None:
            raise _invalid("chat", "this model has no chat template: send text or tokens")
        conversation = [{"role": role, "content": content} for role, content in messages]
        try:
            rendered = render(
                conversations=[conversation],
                chat_template=self._chat_template,
                add_generation_prompt=True,
                **self._special_tokens,
            )[0][0]
        except (
            Exception
        ) as error:  # templates are programs: they refuse, or stumble over, some roles
            raise _invalid("chat", f"the model's chat template refuses it: {error}") from error
        return str(rendered)

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        """Special tokens in the text count as such. `add_special_tokens` puts in what the model's
        tokenizer puts around a text; a rendered chat has it already."""
        try:
            # As a batch of one: unlike `encode` it lets other threads run meanwhile.
            (encoding,) = self._tokenizer.encode_batch(
                [text], add_special_tokens=add_special_tokens
            )
        except (TypeError, UnicodeError) as error:
            raise _invalid("prompt", "not valid Unicode text") from error
        return tuple(encoding.ids)

    def encode_chat(self, messages: Messages) -> TokenIds:
        return self.encode(self.render_chat(messages), add_special_tokens=False)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens left out: what a detokenizer says of them in all."""
        detokenizer = self.detokenizer()
        return detokenizer.push(ids) + detokenizer.flush()

    def detokenizer(self) -> IncrementalDetokenizer:
        return IncrementalDetokenizer(self._decode, self._without_text)

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))


class TextPool:
    """Renders and tokenizes prompts on a few threads, so that the event loop never waits for it."""

    def __init__(
        self,
        codec: TextCodec,
        *,
        num_threads: int = 2,
        max_pending: int = 64,
        max_prompt_chars: int = 1_000_000,
    ) -> None:
        self._codec = codec
        self._max_pending = max_pending
        self._max_prompt_chars = max_prompt_chars
        self._executor = ThreadPoolExecutor(num_threads, thread_name_prefix="text")
        self._lock = threading.Lock()
        self._num_pending = 0

    @property
    def num_pending(self) -> int:
        """Prompts waiting or being worked on; one whose caller has gone still counts until done."""
        return self._num_pending

    async def encode_prompt(
        self, *, text: str | None = None, chat: Messages | None = None
    ) -> TokenIds:
        """Ids of a text or of a rendered conversation. Raises InvalidRequest, QueueFull."""
        if chat is not None:
            messages = tuple(chat)
            self._check_size("chat", sum(len(role) + len(content) for role, content in messages))
            return await self._run(lambda: self._encode_chat(messages))
        assert text is not None, "a prompt is a text or a chat"
        self._check_size("text", len(text))
        return await self._run(lambda: self._codec.encode(text, add_special_tokens=True))

    def close(self) -> None:
        """Drop what has not begun. Does not wait for what has."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _encode_chat(self, messages: Messages) -> TokenIds:
        prompt = self._codec.render_chat(messages)
        self._check_size("chat", len(prompt))
        return self._codec.encode(prompt, add_special_tokens=False)

    def _check_size(self, field: str, num_chars: int) -> None:
        if num_chars > self._max_prompt_chars:
            raise _invalid(
                field, f"{num_chars} characters, at most {self._max_prompt_chars} are taken"
            )

    async def _run(self, work: Callable[[], TokenIds]) -> TokenIds:
        with self._lock:
            if self._num_pending >= self._max_pending:
                raise QueueFull(f"{self._num_pending} prompts are waiting to be tokenized")
            self._num_pending += 1
        try:
            future = self._executor.submit(work)
        except RuntimeError:  # closed
            self._forget(None)
            raise
        future.add_done_callback(self._forget)
        return await asyncio.wrap_future(future)

    def _forget(self, _future: "Future[TokenIds] | None") -> None:
        with self._lock:
            self._num_pending -= 1


def _ids_without_text(tokenizer: Any) -> frozenset[int]:
    """Special tokens, and holes in the vocabulary."""
    ids = set(tokenizer.get_vocab(with_added_tokens=True).values())
    special = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    holes = set(range(max(ids, default=-1) + 1)) - ids
    return frozenset(special | holes)


def _read_json(path: Path) -> dict[str, Any]:
    """Empty where there is no such file."""
    if not path.is_file():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} holds no object")
    return content


def _read_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """chat_template.jinja comes first; a config may name several, then `default` is meant."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        template = {entry["name"]: entry["template"] for entry in template}
    if isinstance(template, dict):
        template = template.get("default")
    return template if isinstance(template, str) else None


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """bos_token and the like, which templates use."""
    found = {}
    for name, value in config.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            found[name] = text
    return found


def _invalid(field: str, description: str) -> InvalidRequest:
    return InvalidRequest(FieldViolation(field, description))
