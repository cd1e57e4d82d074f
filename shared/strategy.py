"""How a pool forms its batches: one value, set live, kept in the store, the same in every replica.

Knows nothing of planning: `scheduler_service.planning.strategies` acts on it.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from shared.checked_values import shown, shown_name
from shared.errors import FieldViolation, InvalidRequest

NAMES = ("continuous", "static", "dynamic")
RELEASES = ("batch_end", "stream")
ADMISSIONS = ("optimistic", "guaranteed")
TIMEOUT_ACTIONS = ("reject", "delay")
MAX_BATCH_SIZE = 1024
MAX_LEVELS = 64  # priority levels with a queue policy of their own
MAX_PRIORITY = 1000  # as requests may have
MAX_POLICY_VALUE = 1_000_000_000
WHOLE_PREFILL = -1  # as chunk_size: a prompt is never cut
_LEVEL = re.compile(r"0|-?[1-9]\d{0,8}")
_MAX_REPORTED = 20  # violations


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePolicy:
    """Of one priority level of a dynamic batcher, as Triton defines it."""

    timeout_action: str = "reject"  # or delay: behind everyone of its level who is in time
    default_timeout_ms: int = 0  # in the queue; 0 = none
    allow_timeout_override: bool = False  # a request's own queue timeout counts, if shorter
    max_queue_size: int = 0  # waiting requests of the level; 0 = unbounded


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategySettings:
    """Fields with their default have no effect; those that the named strategy does not know are
    refused."""

    name: str = "continuous"
    # Every strategy; None: as the replica's own setting says.
    token_budget: int | None = None
    max_sequences: int | None = None
    chunk_size: int | None = None  # 0 = the budget's bound, -1 = prompts are never cut
    # continuous
    admission: str = "optimistic"  # guaranteed: prompt + max_tokens have their blocks at once
    refill_delay_ms: int = 0  # while anything runs, so long between two admissions
    # static
    batch_size: int = 8
    max_wait_ms: int = 0  # then with what is there; 0 = until the batch is full
    # dynamic
    preferred_batch_sizes: tuple[int, ...] = ()
    max_batch_size: int = 8
    max_queue_delay_ms: int = 0
    preserve_ordering: bool = False
    default_queue_policy: QueuePolicy = QueuePolicy()
    priority_queue_policy: dict[int, QueuePolicy] = field(default_factory=dict)  # by priority
    # static and dynamic
    release: str = "batch_end"  # or stream: tokens reach their client as they are sampled

    @property
    def largest_batch(self) -> int:
        """Members of the largest batch; 0 for continuous batching."""
        return {"static": self.batch_size, "dynamic": self.max_batch_size}.get(self.name, 0)

    def queue_policy(self, priority: int) -> QueuePolicy:
        return self.priority_queue_policy.get(priority, self.default_queue_policy)

    def as_json(self) -> str:
        """Only what differs from the defaults; the same settings give the same text."""
        default = StrategySettings(name=self.name)
        changed = {
            f.name: value
            for f in fields(self)
            if (value := getattr(self, f.name)) != getattr(default, f.name) or f.name == "name"
        }
        return json.dumps(changed, default=asdict, sort_keys=True)

    @classmethod
    def parse(cls, text: str) -> Self:
        """A strategy's name, or its settings as JSON. Raises InvalidRequest."""
        if text.lstrip().startswith("{"):
            return cls.from_json(text)
        return cls.from_dict({"name": text})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises InvalidRequest: unknown fields, or settings that `check` refuses."""
        try:
            values = json.loads(text, object_pairs_hook=_each_once)
        except RecursionError:
            raise InvalidRequest(FieldViolation("strategy", "nested too deeply")) from None
        except ValueError as error:
            raise InvalidRequest(FieldViolation("strategy", f"not JSON: {error}")) from error
        if not isinstance(values, dict):
            raise InvalidRequest(FieldViolation("strategy", "not a JSON object"))
        return cls.from_dict(values)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Raises InvalidRequest."""
        _refuse_unknown(cls, values, "")
        values = dict(values)
        if "default_queue_policy" in values:
            policy = values["default_queue_policy"]
            values["default_queue_policy"] = _policy("default_queue_policy", policy)
        if "priority_queue_policy" in values:
            values["priority_queue_policy"] = _levels(values["priority_queue_policy"])
        if "preferred_batch_sizes" in values:
            values["preferred_batch_sizes"] = _sizes(values["preferred_batch_sizes"])
        settings = cls(**values)
        settings.check()
        return settings

    def check(self) -> None:
        """Raises InvalidRequest: what cannot be, and what would have no effect."""
        if violations := tuple(_violations(self)):
            raise InvalidRequest(*violations)


_OF_ALL = ("name", "token_budget", "max_sequences", "chunk_size")
_OPTIONAL = ("token_budget", "max_sequences", "chunk_size")
KNOBS = {
    "continuous": (*_OF_ALL, "admission", "refill_delay_ms"),
    "static": (*_OF_ALL, "batch_size", "max_wait_ms", "release"),
    "dynamic": (
        *_OF_ALL,
        "preferred_batch_sizes",
        "max_batch_size",
        "max_queue_delay_ms",
        "preserve_ordering",
        "default_queue_policy",
        "priority_queue_policy",
        "release",
    ),
}


def _is_int_in(value: Any, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise InvalidRequest(FieldViolation(shown_name(twice), "is named twice"))
    return values


def _refuse_unknown(of: type, values: Iterable[str], prefix: str) -> None:
    unknown = sorted(set(values) - {f.name for f in fields(of)})
    if unknown:
        names = [f"{prefix}{shown_name(name)}" for name in unknown[:_MAX_REPORTED]]
        raise InvalidRequest(*(FieldViolation(name, "no such setting") for name in names))


def _policy(name: str, value: Any) -> QueuePolicy:
    if isinstance(value, QueuePolicy):
        return value
    if not isinstance(value, dict):
        raise InvalidRequest(FieldViolation(name, f"must be a JSON object, got {shown(value)}"))
    _refuse_unknown(QueuePolicy, value, f"{name}.")
    return QueuePolicy(**value)


def _levels(value: Any) -> dict[int, QueuePolicy]:
    name = "priority_queue_policy"
    if not isinstance(value, dict):
        problem = f"must be a JSON object of policies by priority, got {shown(value)}"
        raise InvalidRequest(FieldViolation(name, problem))
    if bad := [level for level in value if not _LEVEL.fullmatch(str(level))]:
        raise InvalidRequest(FieldViolation(f"{name}[{shown_name(bad[0])}]", "no such priority"))
    return {int(level): _policy(f"{name}[{level}]", policy) for level, policy in value.items()}


def _sizes(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        problem = f"must be a list of batch sizes, got {shown(value)}"
        raise InvalidRequest(FieldViolation("preferred_batch_sizes", problem))
    return tuple(value)


def _violations(settings: StrategySettings) -> list[FieldViolation]:
    if settings.name not in NAMES:
        known = ", ".join(NAMES)
        return [FieldViolation("name", f"{shown(settings.name)} is none of: {known}")]
    found = [
        FieldViolation(f.name, f"has no effect with {settings.name}")
        for f in fields(settings)
        if f.name not in KNOBS[settings.name]
        and getattr(settings, f.name) != getattr(StrategySettings(name=settings.name), f.name)
    ]
    found += _range_violations(settings)
    if found:
        return found  # what follows compares numbers
    found += _dynamic_violations(settings) if settings.name == "dynamic" else []
    size = settings.largest_batch
    if settings.max_sequences is not None and size > settings.max_sequences:
        found.append(FieldViolation("max_sequences", f"a batch of {size} does not fit into it"))
    return found


def _range_violations(settings: StrategySettings) -> list[FieldViolation]:
    bounds: tuple[tuple[str, int, int], ...] = (
        ("token_budget", 1, 1 << 20),
        ("max_sequences", 1, 1 << 16),
        ("chunk_size", WHOLE_PREFILL, 1 << 20),
        ("refill_delay_ms", 0, 600_000),
        ("batch_size", 1, MAX_BATCH_SIZE),
        ("max_wait_ms", 0, 86_400_000),
        ("max_batch_size", 1, MAX_BATCH_SIZE),
        ("max_queue_delay_ms", 0, 86_400_000),
    )
    found = [
        FieldViolation(name, f"must be in [{low}, {high}], got {shown(getattr(settings, name))}")
        for name, low, high in bounds
        if not _is_int_in(getattr(settings, name), low, high)
        and (name not in _OPTIONAL or getattr(settings, name) is not None)
    ]
    choices = (("release", RELEASES), ("admission", ADMISSIONS))
    found += [
        FieldViolation(name, f"{shown(getattr(settings, name))} is none of: {', '.join(known)}")
        for name, known in choices
        if getattr(settings, name) not in known
    ]
    return found


def _dynamic_violations(settings: StrategySettings) -> list[FieldViolation]:
    found = []
    sizes = settings.preferred_batch_sizes
    if not all(_is_int_in(size, 1, settings.max_batch_size) for size in sizes):
        most = f"max_batch_size = {settings.max_batch_size}"
        problem = f"sizes must be in [1, {most}], got {shown(list(sizes))}"
        found.append(FieldViolation("preferred_batch_sizes", problem))
    elif len(set(sizes)) != len(sizes):
        found.append(FieldViolation("preferred_batch_sizes", "names a size twice"))
    if settings.preserve_ordering and settings.release == "stream":
        # tokens of one batch reach their clients as they come: there is no order to preserve
        found.append(FieldViolation("preserve_ordering", "has no effect with release = stream"))
    if type(settings.preserve_ordering) is not bool:
        found.append(FieldViolation("preserve_ordering", "must be true or false"))
    return found + _queue_violations(settings)


def _queue_violations(settings: StrategySettings) -> list[FieldViolation]:
    levels = settings.priority_queue_policy
    if len(levels) > MAX_LEVELS:
        return [FieldViolation("priority_queue_policy", f"has more than {MAX_LEVELS} levels")]
    found = []
    policies = {"default_queue_policy": settings.default_queue_policy}
    for level in levels:
        if not -MAX_PRIORITY <= level <= MAX_PRIORITY:
            found.append(FieldViolation(f"priority_queue_policy[{level}]", "no such priority"))
    policies |= {f"priority_queue_policy[{k}]": p for k, p in levels.items()}
    for name, policy in policies.items():
        found += _policy_violations(name, policy)
    return found


def _policy_violations(name: str, policy: QueuePolicy) -> list[FieldViolation]:
    found = []
    if policy.timeout_action not in TIMEOUT_ACTIONS:
        known = ", ".join(TIMEOUT_ACTIONS)
        found.append(FieldViolation(f"{name}.timeout_action", f"must be one of: {known}"))
    for part in ("default_timeout_ms", "max_queue_size"):
        value = getattr(policy, part)
        if not _is_int_in(value, 0, MAX_POLICY_VALUE):
            problem = f"must be in [0, {MAX_POLICY_VALUE}], got {shown(value)}"
            found.append(FieldViolation(f"{name}.{part}", problem))
    if type(policy.allow_timeout_override) is not bool:
        found.append(FieldViolation(f"{name}.allow_timeout_override", "must be true or false"))
        return found
    has_timeout = bool(policy.default_timeout_ms) or policy.allow_timeout_override
    if policy.timeout_action == "delay" and not has_timeout:
        found.append(FieldViolation(f"{name}.timeout_action", "has no effect without a timeout"))
    return found
