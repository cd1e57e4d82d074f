"""Generation, both ways round: a client's request to fields to be judged, output to chunks.

Used by the scheduler's door and by the Python client.
"""

from shared.errors import MalformedMessage
from shared.pb import generation_pb2 as pb
from shared.types import FinishReason
from shared.validation import RawRequest

_CAUSE_TO_PB = {
    FinishReason.STOP_TOKEN: pb.FINISH_CAUSE_STOP_TOKEN,
    FinishReason.STOP_STRING: pb.FINISH_CAUSE_STOP_STRING,
    FinishReason.LENGTH: pb.FINISH_CAUSE_LENGTH,
}
_CAUSE_FROM_PB = {value: key for key, value in _CAUSE_TO_PB.items()}

# An enum value this side does not know is passed on as a name that validation refuses.
_ON_DISCONNECT_FROM_PB = {
    pb.ON_DISCONNECT_UNSPECIFIED: "cancel",
    pb.ON_DISCONNECT_CANCEL: "cancel",
    pb.ON_DISCONNECT_FINISH: "finish",
}
_ON_DISCONNECT_TO_PB = {"cancel": pb.ON_DISCONNECT_CANCEL, "finish": pb.ON_DISCONNECT_FINISH}


# No more than these are taken out of a message: enough for validation to see that it is too many.
MAX_PROMPT_IDS = 1_000_001
MAX_ITEMS = 10_000


def cause_to_pb(finish: FinishReason) -> "pb.FinishCause":
    return _CAUSE_TO_PB[finish]


def cause_from_pb(cause: "pb.FinishCause") -> FinishReason:
    finish = _CAUSE_FROM_PB.get(cause)
    if finish is None:
        raise MalformedMessage(f"unknown finish cause {cause}")
    return finish


def raw_request_from_pb(message: pb.GenerateRequest) -> RawRequest:
    sampling, stopping = message.sampling, message.stopping
    kind = message.WhichOneof("prompt")
    chat = tuple((m.role, m.content) for m in message.chat.messages[:MAX_ITEMS])
    return RawRequest(
        request_id=message.request_id,
        model=message.model,
        text=message.text if kind == "text" else None,
        chat=chat if kind == "chat" else None,
        prompt_ids=tuple(message.tokens.ids[:MAX_PROMPT_IDS]) if kind == "tokens" else None,
        temperature=sampling.temperature if sampling.HasField("temperature") else None,
        top_k=sampling.top_k if sampling.HasField("top_k") else None,
        top_p=sampling.top_p if sampling.HasField("top_p") else None,
        min_p=sampling.min_p if sampling.HasField("min_p") else None,
        seed=sampling.seed if sampling.HasField("seed") else None,
        max_tokens=stopping.max_tokens if stopping.HasField("max_tokens") else None,
        min_tokens=stopping.min_tokens,
        stop=tuple(stopping.stop[:MAX_ITEMS]),
        stop_token_ids=tuple(stopping.stop_token_ids[:MAX_ITEMS]),
        ignore_eos=stopping.ignore_eos,
        include_stop=stopping.include_stop,
        priority=message.priority,
        tenant=message.tenant,
        timeout_ms=message.timeout_ms,
        queue_timeout_ms=message.queue_timeout_ms,
        on_disconnect=_ON_DISCONNECT_FROM_PB.get(message.on_disconnect, str(message.on_disconnect)),
        disconnect_grace_ms=(
            message.disconnect_grace_ms if message.HasField("disconnect_grace_ms") else None
        ),
        cache_salt=message.cache_salt,
    )


def raw_request_to_pb(raw: RawRequest) -> pb.GenerateRequest:
    """Raises ValueError for numbers that the fields cannot carry."""
    message = pb.GenerateRequest(
        request_id=raw.request_id,
        model=raw.model,
        sampling=pb.Sampling(
            temperature=raw.temperature,
            top_k=raw.top_k,
            top_p=raw.top_p,
            min_p=raw.min_p,
            seed=raw.seed,
        ),
        stopping=pb.Stopping(
            max_tokens=raw.max_tokens,
            min_tokens=raw.min_tokens,
            stop=raw.stop,
            stop_token_ids=raw.stop_token_ids,
            ignore_eos=raw.ignore_eos,
            include_stop=raw.include_stop,
        ),
        priority=raw.priority,
        tenant=raw.tenant,
        timeout_ms=raw.timeout_ms,
        queue_timeout_ms=raw.queue_timeout_ms,
        on_disconnect=_ON_DISCONNECT_TO_PB[raw.on_disconnect],
        disconnect_grace_ms=raw.disconnect_grace_ms,
        cache_salt=raw.cache_salt,
    )
    if raw.text is not None:
        message.text = raw.text
    elif raw.chat is not None:
        message.chat.SetInParent()
        message.chat.messages.extend(pb.ChatMessage(role=r, content=c) for r, c in raw.chat)
    elif raw.prompt_ids is not None:
        message.tokens.SetInParent()
        message.tokens.ids.extend(raw.prompt_ids)
    return message
