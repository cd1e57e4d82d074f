"""The one place where a request is judged, below every door.

Two looks: `check_fields` at what the client sent, before anything is spent on it; `check_length`
once the prompt is tokenized, against what the workers can run. Each reports all that is wrong with
a request at once, under the field paths of generation.proto. Standard library only; knows
nothing of protobuf.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from shared.errors import FieldViolation, InvalidRequest
from shared.request_fields import Capacity, CheckedRequest, RawRequest, RequestLimits
from shared.types import TokenIds

# the values are kept beside this file for its length only: callers need not know that
__all__ = [
    "Capacity",
    "CheckedRequest",
    "RawRequest",
    "RequestLimits",
    "check_fields",
    "check_length",
    "check_request_id",
    "check_request_ids",
    "check_token_ids",
]

_NAME = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_MAX_GREEDY_TEMPERATURE = 1e-5  # below it, logits / temperature overflows: greedy is meant
_MAX_REPORTED = 20  # violations; a request with a million bad ids gets no megabyte of answer


def check_fields(raw: RawRequest, limits: RequestLimits) -> CheckedRequest:
    """Judge every field by itself. Raises InvalidRequest with all violations."""
    findings = _Findings()
    _check_names(raw, limits, findings)
    _check_prompt(raw, limits, findings)
    _check_sampling(raw, limits, findings)
    _check_stopping(raw, limits, findings)
    _check_delivery(raw, limits, findings)
    findings.raise_if_any()
    return _with_defaults(raw, limits)


def check_length(
    num_prompt_tokens: int,
    max_tokens: int | None,
    capacities: Sequence[Capacity],
    limits: RequestLimits,
    min_tokens: int = 0,
) -> int:
    """The request's max_tokens, if some worker can ever run it. Raises InvalidRequest.

    Without workers nothing is known and nothing is judged here but an empty prompt.
    """
    findings = _Findings()
    room = max((c.max_request_tokens for c in capacities), default=None)
    wanted = max_tokens if max_tokens is not None else limits.default_max_tokens
    if num_prompt_tokens < 1:
        findings.add("prompt", "is empty")
    elif room is not None and num_prompt_tokens + 1 > room:
        findings.add(
            "prompt", f"{num_prompt_tokens} tokens leave no room for output: {_room(room)}"
        )
    elif room is not None and max_tokens is None:
        wanted = max(1, min(max(wanted, min_tokens), room - num_prompt_tokens))
    elif room is not None and not any(c.fits(num_prompt_tokens, wanted) for c in capacities):
        findings.add(
            "stopping.max_tokens",
            f"{num_prompt_tokens} prompt tokens and {_short(wanted)} output tokens: {_room(room)}",
        )
    if not findings.violations and min_tokens > wanted:
        findings.add(
            "stopping.min_tokens", f"{_short(min_tokens)} is more than {wanted}, max_tokens"
        )
    findings.raise_if_any()
    return wanted


def check_token_ids(
    prompt_ids: TokenIds | None, stop_token_ids: TokenIds, logits_width: int
) -> None:
    """Ids must have a logit, and so an embedding. Raises InvalidRequest."""
    findings = _Findings()
    for path, ids in (
        ("tokens.ids", prompt_ids or ()),
        ("stopping.stop_token_ids", stop_token_ids),
    ):
        if not ids or (min(ids) >= 0 and max(ids) < logits_width):
            continue
        for index, token_id in enumerate(ids):
            findings.check_range(f"{path}[{index}]", token_id, 0, logits_width - 1)
    findings.raise_if_any()


def check_request_id(request_id: str) -> None:
    """The id of a request that was submitted: by the rule it was taken by. Raises InvalidRequest."""
    findings = _Findings()
    findings.check_name("request_id", request_id, is_required=True)
    findings.raise_if_any()


def check_request_ids(request_ids: Sequence[str], limits: RequestLimits) -> None:
    """Many of them; none is fine. Raises InvalidRequest."""
    findings = _Findings()
    findings.check_count("request_ids", len(request_ids), limits.max_cancelled_ids)
    findings.raise_if_any()  # the number bounds the work of looking at each
    for index, request_id in enumerate(request_ids):
        findings.check_name(f"request_ids[{index}]", request_id, is_required=True)
    findings.raise_if_any()


@dataclass(slots=True)
class _Findings:
    """The violations found so far."""

    violations: list[FieldViolation] = field(default_factory=list)

    def add(self, path: str, description: str) -> None:
        if len(self.violations) < _MAX_REPORTED:
            self.violations.append(FieldViolation(path, description))

    def check_range(
        self, path: str, value: float | None, least: float, most: float, *, above: bool = False
    ) -> None:
        """[least, most], or (least, most] if `above`; NaN is in no range."""
        if value is None:
            return
        if isinstance(value, float) and not math.isfinite(value):
            self.add(path, f"{value} is not a finite number")
        elif not least <= value <= most or (above and value == least):
            self.add(path, f"{_short(value)} is not in {'(' if above else '['}{least}, {most}]")

    def check_text(self, path: str, text: str, most: int, least: int = 0) -> None:
        if not least <= len(text) <= most:
            self.add(path, f"{len(text)} characters; {least} to {most} are taken")
        elif not _is_unicode(text):
            self.add(path, "holds lone surrogates: it is not valid Unicode")

    def check_count(self, path: str, count: int, most: int) -> None:
        if count > most:
            self.add(path, f"{count} of them, at most {most}")

    def check_name(self, path: str, name: str, *, is_required: bool = False) -> None:
        if not name and is_required:
            self.add(path, "is empty")
        elif name and not _NAME.fullmatch(name):
            self.add(path, f"{_short(name)} does not match [A-Za-z0-9._:-]{{1,128}}")

    def raise_if_any(self) -> None:
        if self.violations:
            raise InvalidRequest(*self.violations)


def _check_names(raw: RawRequest, limits: RequestLimits, findings: _Findings) -> None:
    findings.check_name("request_id", raw.request_id)
    findings.check_name("tenant", raw.tenant)
    findings.check_text("model", raw.model, 1024)
    findings.check_text("cache_salt", raw.cache_salt, limits.max_salt_chars)


def _check_prompt(raw: RawRequest, limits: RequestLimits, findings: _Findings) -> None:
    given = [p for p in (raw.text, raw.chat, raw.prompt_ids) if p is not None]
    if len(given) != 1:
        findings.add("prompt", f"{len(given)} prompts; exactly one of text, chat, tokens is taken")
        return
    if raw.text is not None:
        findings.check_text("text", raw.text, limits.max_prompt_chars, least=1)
    elif raw.chat is not None:
        _check_chat(raw.chat, limits, findings)
    elif raw.prompt_ids is not None:
        findings.check_range("tokens.ids", len(raw.prompt_ids), 1, limits.max_prompt_ids)


def _check_chat(
    chat: tuple[tuple[str, str], ...], limits: RequestLimits, findings: _Findings
) -> None:
    if not 1 <= len(chat) <= limits.max_chat_messages:
        findings.add(
            "chat.messages", f"{len(chat)} messages; 1 to {limits.max_chat_messages} are taken"
        )
        return
    num_chars = sum(len(content) for _, content in chat)
    if num_chars > limits.max_prompt_chars:
        findings.add("chat.messages", f"{num_chars} characters, at most {limits.max_prompt_chars}")
        return
    for index, (role, content) in enumerate(chat):
        path = f"chat.messages[{index}]"
        findings.check_text(f"{path}.role", role, limits.max_role_chars, least=1)
        findings.check_text(f"{path}.content", content, limits.max_prompt_chars)


def _check_sampling(raw: RawRequest, limits: RequestLimits, findings: _Findings) -> None:
    findings.check_range("sampling.temperature", raw.temperature, 0, limits.max_temperature)
    findings.check_range("sampling.top_k", raw.top_k, 0, 2**31 - 1)
    findings.check_range("sampling.top_p", raw.top_p, 0, 1, above=True)
    findings.check_range("sampling.min_p", raw.min_p, 0, 1)
    findings.check_range("sampling.seed", raw.seed, 0, 2**64 - 1)


def _check_stopping(raw: RawRequest, limits: RequestLimits, findings: _Findings) -> None:
    findings.check_range("stopping.max_tokens", raw.max_tokens, 1, 2**31 - 1)
    findings.check_range("stopping.min_tokens", raw.min_tokens, 0, 2**31 - 1)
    if raw.max_tokens is not None and raw.min_tokens > raw.max_tokens:
        findings.add("stopping.min_tokens", "is more than max_tokens")
    findings.check_count("stopping.stop", len(raw.stop), limits.max_stop_strings)
    for index, stop in enumerate(raw.stop[: limits.max_stop_strings]):
        findings.check_text(f"stopping.stop[{index}]", stop, limits.max_stop_chars, least=1)
    findings.check_count(
        "stopping.stop_token_ids", len(raw.stop_token_ids), limits.max_stop_token_ids
    )


def _check_delivery(raw: RawRequest, limits: RequestLimits, findings: _Findings) -> None:
    findings.check_range("priority", raw.priority, -limits.max_priority, limits.max_priority)
    for name in ("timeout_ms", "queue_timeout_ms"):
        findings.check_range(name, getattr(raw, name), 0, limits.max_timeout_ms)
    findings.check_range(
        "disconnect_grace_ms", raw.disconnect_grace_ms, 0, limits.max_disconnect_grace_ms
    )
    if raw.on_disconnect not in ("cancel", "finish"):
        findings.add("on_disconnect", f"{_short(raw.on_disconnect)} is neither cancel nor finish")


def _with_defaults(raw: RawRequest, limits: RequestLimits) -> CheckedRequest:
    temperature = 1.0 if raw.temperature is None else float(raw.temperature)
    grace_ms = raw.disconnect_grace_ms
    return CheckedRequest(
        request_id=raw.request_id,
        model=raw.model,
        text=raw.text,
        chat=raw.chat,
        prompt_ids=raw.prompt_ids,
        temperature=0.0 if temperature < _MAX_GREEDY_TEMPERATURE else temperature,
        top_k=raw.top_k or 0,
        top_p=1.0 if raw.top_p is None else float(raw.top_p),
        min_p=0.0 if raw.min_p is None else abs(float(raw.min_p)),  # -0.0 is 0
        seed=raw.seed,
        max_tokens=raw.max_tokens,
        min_tokens=raw.min_tokens,
        stop=tuple(dict.fromkeys(raw.stop)),
        stop_token_ids=tuple(dict.fromkeys(raw.stop_token_ids)),
        ignore_eos=raw.ignore_eos,
        include_stop=raw.include_stop,
        priority=raw.priority,
        tenant=raw.tenant,
        timeout_ms=raw.timeout_ms,
        queue_timeout_ms=raw.queue_timeout_ms,
        finish_on_disconnect=raw.on_disconnect == "finish",
        disconnect_grace_ms=limits.default_disconnect_grace_ms if grace_ms is None else grace_ms,
        cache_salt=raw.cache_salt or raw.tenant,
    )


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _short(value: float | str) -> str:
    """For a message: no newline, nothing long."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _room(max_request_tokens: int) -> str:
    return f"the largest worker takes {max_request_tokens} in all"
