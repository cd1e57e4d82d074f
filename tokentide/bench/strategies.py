"""Strategies as users of the benchmarks name them: `static:8`, `dynamic:16:max_queue_delay_ms=50`."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from shared.errors import InvalidRequest
from shared.strategy import KNOBS, StrategySettings

FORM = "NAME[:SIZE][:SETTING=VALUE]..., lists as 4/8"
# Without it the last requests of a load would wait for ever for a batch that cannot be filled.
STATIC_WAIT_MS = 1000
DYNAMIC_SIZE = 16
DYNAMIC_DELAY_MS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedStrategy:
    """`label` is what the user wrote."""

    label: str
    settings: StrategySettings

    @property
    def is_batching(self) -> bool:
        """It forms batches that nobody joins."""
        return self.settings.name != "continuous"


def holds_answers(settings_json: str) -> bool:
    """Its answers leave when the batch ends: then a time to first token is an end-to-end time."""
    values = json.loads(settings_json)
    return bool(values["name"] != "continuous" and values.get("release") != "stream")


def held_note(holding: Iterable[str]) -> str:
    """`holding`: labels of strategies that hold answers. Empty for none."""
    names = ", ".join(dict.fromkeys(holding))
    return (
        f"{names}: answers leave at the batch's end (release=stream: as sampled)" if names else ""
    )


def parse_strategies(text: str) -> tuple[NamedStrategy, ...]:
    """Comma-separated. Raises ValueError with one line."""
    named = tuple(parse_strategy(part.strip()) for part in text.split(",") if part.strip())
    labels = [strategy.label for strategy in named]
    if not labels or len(set(labels)) < len(labels):
        raise ValueError(f"{text!r}: at least one strategy, none twice")
    return named


def parse_strategy(spec: str) -> NamedStrategy:
    """Raises ValueError with one line."""
    name, *parts = spec.split(":")
    values: dict[str, Any] = {}
    if parts and parts[0].isdigit():
        size_name = {"static": "batch_size", "dynamic": "max_batch_size"}.get(name)
        if size_name is None:
            raise ValueError(f"{spec!r}: {name} has no batch size")
        values[size_name] = int(parts.pop(0))
    for part in parts:
        key, separator, value = part.partition("=")
        if not separator or key not in KNOBS.get(name, ()):
            raise ValueError(f"{spec!r}: {part!r} is no setting of {name}; {FORM}")
        if key in values:
            raise ValueError(f"{spec!r}: {key} is said twice")
        values[key] = _typed(key, value)
    try:
        settings = StrategySettings.from_dict({"name": name, **_defaults(name, values), **values})
    except InvalidRequest as error:
        raise ValueError(f"{spec!r}: {error}") from error
    return NamedStrategy(label=spec, settings=settings)


def _defaults(name: str, values: dict[str, Any]) -> dict[str, Any]:
    if name == "static":
        return {"max_wait_ms": STATIC_WAIT_MS}
    if name != "dynamic":
        return {}
    size = values.get("max_batch_size", DYNAMIC_SIZE)
    return {
        "max_batch_size": size,
        "preferred_batch_sizes": (size,),
        "max_queue_delay_ms": DYNAMIC_DELAY_MS,
    }


def _typed(key: str, value: str) -> Any:
    default = {f.name: f.default for f in fields(StrategySettings)}[key]
    if isinstance(default, tuple):
        return tuple(_number(key, part) for part in value.split("/"))
    if isinstance(default, bool):
        if value not in ("true", "false"):
            raise ValueError(f"{key}={value}: neither true nor false; {FORM}")
        return value == "true"
    if isinstance(default, str):
        return value
    return _number(key, value)


def _number(key: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{key}={value}: not a whole number; {FORM}") from None
