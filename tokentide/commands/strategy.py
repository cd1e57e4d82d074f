"""`strategy set`, `show`, `clear`: how a running pool forms its batches."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from shared.strategy import StrategySettings
from tokentide.commands.endpoints import endpoint_names
from tokentide.commands.errors import CommandError
from tokentide.commands.operations_client import OperationsClient
from tokentide.commands.top import connected

Ask = Callable[[OperationsClient], Coroutine[Any, Any, StrategySettings]]


def set_strategy(name: str, *, endpoints: str, as_json: bool, options: Mapping[str, Any]) -> int:
    """`options` as texts or numbers under the settings' own names. Raises InvalidRequest, CommandError."""
    settings = settings_of(name, options)
    return _show(endpoints, as_json, lambda replica: replica.set_strategy(settings))


def show_strategy(*, endpoints: str, as_json: bool) -> int:
    return _show(endpoints, as_json, lambda replica: replica.strategy())


def clear_strategy(*, endpoints: str, as_json: bool) -> int:
    return _show(endpoints, as_json, lambda replica: replica.set_strategy(None))


def settings_of(name: str, options: Mapping[str, Any]) -> StrategySettings:
    """Raises InvalidRequest for what cannot be or has no effect, CommandError for a wrong form."""
    values = {key: value for key, value in options.items() if value is not None}
    sizes = values.get("preferred_batch_sizes")
    if sizes is not None:
        values["preferred_batch_sizes"] = _sizes(sizes)
    policy = values.get("default_queue_policy")
    if policy is not None:
        values["default_queue_policy"] = _policy(policy)
    levels = values.pop("priority_queue_policy", None)
    if levels:
        values["priority_queue_policy"] = _levels(levels)
    return StrategySettings.from_dict({"name": name, **values})


def _show(endpoints: str, as_json: bool, ask: Ask) -> int:
    names = endpoint_names(endpoints)

    async def run() -> StrategySettings:
        async with connected(names) as replicas:
            return await ask(replicas[0])  # any replica answers for the pool

    settings = asyncio.run(run())
    print(settings.as_json() if as_json else _in_words(settings))
    return 0


def _in_words(settings: StrategySettings) -> str:
    values = json.loads(settings.as_json())
    name = values.pop("name")
    return "  ".join([str(name), *(f"{key}={_value(value)}" for key, value in values.items())])


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value) if not isinstance(value, dict) else json.dumps(value)


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise CommandError(f"{text!r} is no list of batch sizes, as 4,8") from None


def _levels(texts: Sequence[str]) -> dict[int, dict[str, Any]]:
    levels: dict[int, dict[str, Any]] = {}
    for level, policy in map(_level, texts):
        if level in levels:
            raise CommandError(f"priority {level} has two policies: one, with all that it says")
        levels[level] = policy
    return levels


def _level(text: str) -> tuple[int, dict[str, Any]]:
    """`1:max_queue_size=10,default_timeout_ms=500`"""
    level, _, policy = text.partition(":")
    try:
        return int(level), _policy(policy)
    except ValueError:
        raise CommandError(f"{text!r} is no LEVEL:POLICY, as 1:max_queue_size=10") from None


def _policy(text: str) -> dict[str, Any]:
    """`timeout_action=delay,default_timeout_ms=500`"""
    values: dict[str, Any] = {}
    for part in text.split(","):
        key, _, value = part.partition("=")
        if not value:
            raise CommandError(f"{text!r} is no queue policy, as default_timeout_ms=500")
        if key.strip() in values:
            raise CommandError(f"{text!r} says {key.strip()} twice")
        values[key.strip()] = _typed(value.strip())
    return values


def _typed(value: str) -> Any:
    if value in ("true", "false"):
        return value == "true"
    return int(value) if value.lstrip("-").isdigit() else value
