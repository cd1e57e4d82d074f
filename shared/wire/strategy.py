"""Strategy settings to their message and back. A field that is absent has its default."""

from dataclasses import asdict, fields
from typing import Any

from shared.pb import operations_pb2 as pb
from shared.strategy import QueuePolicy, StrategySettings

_LISTS = frozenset({"preferred_batch_sizes"})
_POLICIES = frozenset({"default_queue_policy", "priority_queue_policy"})


def strategy_to_pb(settings: StrategySettings) -> pb.Strategy:
    """Only what differs from the defaults: the service refuses what has no effect."""
    default = StrategySettings(name=settings.name)
    message = pb.Strategy(name=settings.name)
    for name in (f.name for f in fields(settings) if f.name not in _LISTS | _POLICIES):
        value = getattr(settings, name)
        if value != getattr(default, name):
            setattr(message, name, value)
    message.preferred_batch_sizes.extend(settings.preferred_batch_sizes)
    if settings.default_queue_policy != default.default_queue_policy:
        message.default_queue_policy.CopyFrom(_policy_to_pb(settings.default_queue_policy))
    for priority, policy in settings.priority_queue_policy.items():
        message.priority_queue_policy[priority].CopyFrom(_policy_to_pb(policy))
    return message


def strategy_from_pb(message: pb.Strategy) -> StrategySettings:
    """Raises InvalidRequest: an answer that cannot be."""
    values: dict[str, Any] = {f.name: value for f, value in message.ListFields()}
    if "preferred_batch_sizes" in values:
        values["preferred_batch_sizes"] = tuple(message.preferred_batch_sizes)
    if "default_queue_policy" in values:
        values["default_queue_policy"] = _policy_from_pb(message.default_queue_policy)
    if "priority_queue_policy" in values:
        values["priority_queue_policy"] = {
            priority: _policy_from_pb(policy)
            for priority, policy in message.priority_queue_policy.items()
        }
    return StrategySettings.from_dict(values)


def _policy_to_pb(policy: QueuePolicy) -> pb.QueuePolicy:
    return pb.QueuePolicy(**asdict(policy))


def _policy_from_pb(message: pb.QueuePolicy) -> QueuePolicy:
    given: dict[str, Any] = {f.name: value for f, value in message.ListFields()}
    return QueuePolicy(**given)
