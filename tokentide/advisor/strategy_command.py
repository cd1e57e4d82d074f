"""Settings as the command line that sets them, and as a short name. Texts only."""

import json
import shlex
from typing import Any

from shared.strategy import WHOLE_PREFILL, StrategySettings

FLAGS = {"default_queue_policy": "--queue-policy", "priority_queue_policy": "--priority-policy"}


def strategy_command(settings: StrategySettings, operations: str = "") -> str:
    """`tokentide strategy set ...`; `operations`: the operators' port, empty for the usual one."""
    values = _changed(settings)
    words = ["tokentide", "strategy", "set", str(values.pop("name"))]
    if operations:
        words += ["--endpoint", operations]
    for name, value in values.items():
        flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
        words += [word for text in _texts(value) for word in _flag(flag, text)]
    return shlex.join(words)


def short_text(settings: StrategySettings) -> str:
    """As a person reads it: `static 8, budget 512, streamed`; what is the default is left out."""
    values = _changed(settings)
    if values.get("preferred_batch_sizes") == [settings.max_batch_size]:
        del values["preferred_batch_sizes"]
    name = str(values.pop("name"))
    for size in ("batch_size", "max_batch_size"):
        values.pop(size, None)
    size_text = f" {settings.largest_batch}" if settings.largest_batch else ""
    parts = [_words(key, value) for key, value in values.items()]
    return ", ".join([name + size_text, *(part for part in parts if part)])


_WORDS = {
    "token_budget": "budget {}",
    "max_sequences": "{} at once",
    "chunk_size": "chunks of {}",
    "max_wait_ms": "wait {} ms",
    "max_queue_delay_ms": "delay {} ms",
    "refill_delay_ms": "refill {} ms",
}
_OF_VALUES = {
    ("chunk_size", 0): "",  # the budget's bound, as if nothing were said
    ("chunk_size", WHOLE_PREFILL): "whole prompts",
    ("release", "stream"): "streamed",
    ("admission", "guaranteed"): "guaranteed",
}


def _words(key: str, value: Any) -> str:
    text = " ".join(_texts(value))
    if isinstance(value, int | str) and (key, value) in _OF_VALUES:
        return _OF_VALUES[key, value]
    return _WORDS[key].format(text) if key in _WORDS else f"{key} {text}".strip()


def _changed(settings: StrategySettings) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(settings.as_json())
    return values


def _flag(flag: str, text: str) -> list[str]:
    return [flag, text] if text else [flag]


def _texts(value: Any) -> list[str]:
    """One, or for levels of priority one each; empty: a bare flag."""
    if value is True:
        return [""]
    if isinstance(value, list):
        return [",".join(map(str, value))]
    if not isinstance(value, dict):
        return [str(value)]
    if all(isinstance(inner, dict) for inner in value.values()):
        return [f"{level}:{_texts(policy)[0]}" for level, policy in value.items()]
    return [",".join(f"{key}={json.dumps(one).strip(chr(34))}" for key, one in value.items())]
