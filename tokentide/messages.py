"""Between what a user of the client gives and gets, and the messages of the contract."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from shared.pb import generation_pb2 as pb
from shared.types import FinishReason
from shared.validation import RawRequest
from shared.wire.generation import cause_from_pb, raw_request_to_pb
from tokentide.errors import FieldViolation, TokentideError
from tokentide.resume import Chunk, Finish, Usage

OPTIONS = frozenset(f.name for f in fields(RawRequest)) - {"text", "chat", "prompt_ids"}

Prompt = str | Sequence[int] | Sequence[dict[str, str]] | Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestState:
    request_id: str
    status: str
    text: str
    token_ids: tuple[int, ...]
    finish: Finish | None
    error: str
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    name: str
    max_model_tokens: int
    max_request_tokens: int
    num_workers: int
    fingerprint: str


def request_message(prompt: Prompt, options: dict[str, Any]) -> pb.GenerateRequest:
    """Raises TypeError for an unknown option, TokentideError for a value that has no place in the message."""
    raw = make_request(prompt, _tuples(options))
    try:
        return raw_request_to_pb(raw)
    except (ValueError, TypeError, KeyError, UnicodeEncodeError) as error:
        message = f"an option has a wrong type or range: {error}"
        violation = FieldViolation("request", message)
        raise TokentideError("INVALID_ARGUMENT", message, (violation,)) from error


def make_request(prompt: Prompt, options: dict[str, Any]) -> RawRequest:
    """A prompt is a text, a sequence of token ids, or chat messages: {"role", "content"} or pairs.

    Raises TypeError for a prompt of another kind and for an unknown option.
    """
    for name in options:
        if name not in OPTIONS:
            close = difflib.get_close_matches(name, OPTIONS, 1)
            raise TypeError(f"no option {name!r}" + (f"; is {close[0]!r} meant?" if close else ""))
    if isinstance(prompt, str):
        return RawRequest(text=prompt, **options)
    if isinstance(prompt, bytes):
        raise TypeError("a prompt is a str, token ids or messages, not bytes")
    items: list[Any] = list(prompt)
    if items and all(isinstance(item, int) for item in items):
        return RawRequest(prompt_ids=tuple(items), **options)
    return RawRequest(chat=tuple(map(_message_pair, items)), **options)


def _message_pair(item: Any) -> tuple[str, str]:
    if isinstance(item, dict) and {"role", "content"} <= item.keys():
        return item["role"], item["content"]
    if isinstance(item, tuple | list) and len(item) == 2:
        return item[0], item[1]
    raise TypeError(f"a message is a (role, content) pair or has these two keys, got {item!r}")


def _tuples(options: dict[str, Any]) -> dict[str, Any]:
    """Lists are welcome where the values are tuples; a single stop string is one."""
    stop = options.get("stop")
    if isinstance(stop, str):
        options["stop"] = (stop,)
    return {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}


def state_from_pb(state: pb.RequestState) -> RequestState:
    return RequestState(
        request_id=state.request_id,
        status=state.status,
        text=state.text,
        token_ids=tuple(state.token_ids),
        finish=finish_from_pb(state.finish) if state.HasField("finish") else None,
        error=state.error,
        usage=usage_from_pb(state.usage),
    )


def model_from_pb(model: pb.Model) -> Model:
    return Model(
        name=model.name,
        max_model_tokens=model.max_model_tokens,
        max_request_tokens=model.max_request_tokens,
        num_workers=model.num_workers,
        fingerprint=model.fingerprint,
    )


def chunk_from_pb(message: pb.GenerateChunk, is_opening: bool) -> Chunk:
    return Chunk(
        request_id=message.request_id,
        start_index=message.start_index,
        token_ids=tuple(message.token_ids),
        text=message.text,
        finish=finish_from_pb(message.finish) if message.HasField("finish") else None,
        prefix_hash=message.prefix_hash,
        must_move=message.move,
        seed=message.seed if is_opening else None,
        num_prompt_tokens=message.num_prompt_tokens if is_opening else None,
    )


def finish_from_pb(message: pb.Finish) -> Finish:
    reason = cause_from_pb(message.cause)
    return Finish(
        reason=reason,
        stop_token_id=message.stop_token_id if reason is FinishReason.STOP_TOKEN else None,
        stop_string=message.stop_string if reason is FinishReason.STOP_STRING else None,
        usage=usage_from_pb(message.usage),
    )


def usage_from_pb(message: pb.Usage) -> Usage:
    return Usage(
        num_prompt_tokens=message.num_prompt_tokens,
        num_output_tokens=message.num_output_tokens,
        num_generated_tokens=message.num_generated_tokens,
        num_cached_tokens=message.num_cached_tokens,
    )
