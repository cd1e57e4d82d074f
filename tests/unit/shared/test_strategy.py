"""Strategy settings: what cannot be, and what would have no effect, is refused."""

import json

import pytest

from shared.errors import InvalidRequest
from shared.strategy import KNOBS, QueuePolicy, StrategySettings

EXAMPLES = (
    StrategySettings(),
    StrategySettings(chunk_size=-1, token_budget=128, admission="guaranteed", refill_delay_ms=20),
    StrategySettings(name="static", batch_size=32, max_wait_ms=5, release="stream"),
    StrategySettings(
        name="dynamic",
        preferred_batch_sizes=(4, 8),
        max_queue_delay_ms=100,
        preserve_ordering=True,
        default_queue_policy=QueuePolicy(default_timeout_ms=10),
        priority_queue_policy={-3: QueuePolicy(timeout_action="delay", default_timeout_ms=1)},
    ),
)


@pytest.mark.parametrize("settings", EXAMPLES)
def test_settings_survive_their_json(settings: StrategySettings) -> None:
    assert StrategySettings.from_json(settings.as_json()) == settings


REFUSED = [
    ({"name": "magic"}, "name"),
    ({"batch_size": 4}, "batch_size"),
    ({"name": "static", "refill_delay_ms": 4}, "refill_delay_ms"),
    ({"name": "static", "preferred_batch_sizes": [4]}, "preferred_batch_sizes"),
    ({"name": "dynamic", "admission": "guaranteed"}, "admission"),
    ({"release": "stream"}, "release"),
    ({"name": "static", "batch_size": 0}, "batch_size"),
    ({"name": "static", "batch_size": 2.5}, "batch_size"),
    ({"name": "static", "batch_size": True}, "batch_size"),
    ({"name": "static", "release": "now"}, "release"),
    ({"chunk_size": -2}, "chunk_size"),
    ({"token_budget": 0}, "token_budget"),
    ({"name": "dynamic", "preferred_batch_sizes": [9]}, "preferred_batch_sizes"),
    ({"name": "dynamic", "preferred_batch_sizes": 4}, "preferred_batch_sizes"),
    ({"name": "dynamic", "preferred_batch_sizes": [[4]]}, "preferred_batch_sizes"),
    (
        {"name": "dynamic", "preferred_batch_sizes": [4], "max_batch_size": "8"},
        "max_batch_size",
    ),
    ({"name": ["static"]}, "name"),
    ({"name": None}, "name"),
    ({"name": "static", "max_sequences": "9"}, "max_sequences"),
    ({"name": "dynamic", "preserve_ordering": True, "release": "stream"}, "preserve_ordering"),
    ({"name": "static", "batch_size": 9, "max_sequences": 8}, "max_sequences"),
    ({"name": "dynamic", "max_batch_size": 9, "max_sequences": 8}, "max_sequences"),
    (
        {"name": "dynamic", "default_queue_policy": {"timeout_action": "delay"}},
        "default_queue_policy.timeout_action",
    ),
    (
        {"name": "dynamic", "priority_queue_policy": {"1": {"max_queue_size": -1}}},
        "priority_queue_policy[1].max_queue_size",
    ),
    (
        {"name": "dynamic", "default_queue_policy": {"nonsense": 1}},
        "default_queue_policy.nonsense",
    ),
    ({"name": "dynamic", "default_queue_policy": None}, "default_queue_policy"),
    ({"name": "dynamic", "default_queue_policy": [1]}, "default_queue_policy"),
    ({"name": "dynamic", "priority_queue_policy": None}, "priority_queue_policy"),
    ({"name": "dynamic", "priority_queue_policy": [{}]}, "priority_queue_policy"),
    ({"name": "dynamic", "priority_queue_policy": {"x": {}}}, "priority_queue_policy[x]"),
    ({"name": "dynamic", "priority_queue_policy": {"01": {}}}, "priority_queue_policy[01]"),
    ({"name": "dynamic", "priority_queue_policy": {"1": 3}}, "priority_queue_policy[1]"),
    (
        {"name": "dynamic", "priority_queue_policy": {"1": {"\ud800": 3}}},
        r"priority_queue_policy[1].\ud800",
    ),
    ({"nonsense": 1}, "nonsense"),
    ({"name": "static", "batch_size": None}, "batch_size"),
    ({"name": "dynamic", "preserve_ordering": "no"}, "preserve_ordering"),
    ({"name": "dynamic", "preferred_batch_sizes": [4, 4]}, "preferred_batch_sizes"),
    (
        {"name": "dynamic", "default_queue_policy": {"allow_timeout_override": "no"}},
        "default_queue_policy.allow_timeout_override",
    ),
    (
        {"name": "dynamic", "default_queue_policy": {"default_timeout_ms": 10**23}},
        "default_queue_policy.default_timeout_ms",
    ),
    (
        {"name": "dynamic", "priority_queue_policy": {"1001": {"max_queue_size": 1}}},
        "priority_queue_policy[1001]",
    ),
    (
        {"name": "dynamic", "priority_queue_policy": {str(n): {} for n in range(65)}},
        "priority_queue_policy",
    ),
    ({"name": "dynamic", "max_batch_size": None}, "max_batch_size"),
]


@pytest.mark.parametrize(("values", "field"), REFUSED, ids=[ascii(v) for v, _ in REFUSED])
def test_what_cannot_be_or_has_no_effect_is_refused(values: dict, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        StrategySettings.from_dict(values)

    assert field in {violation.field for violation in caught.value.violations}
    for words in ("object", "attribute", "argument", "mapping", "unhashable", "not supported"):
        assert words not in str(caught.value).replace("a JSON object", "")


@pytest.mark.parametrize(
    "text", ["[]", "{", '"static"', '{"a":' * 100_000], ids=["list", "cut", "text", "deep"]
)
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        StrategySettings.from_json(text)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"name": "a" * 1_000_000}),
        json.dumps({"a" * 1_000_000: 1}),
        json.dumps({f"a{n}": 1 for n in range(100_000)}),
        json.dumps({"name": "static", "batch_size": [1] * 100_000}),
        json.dumps({"name": "dynamic", "preferred_batch_sizes": [0] * 100_000}),
        '{"\\ud800": 1}',
        '{"name": "\\ud800"}',
        '{"\\ud800": 1, "\\ud800": 2}',
    ],
    ids=["name", "key", "keys", "list", "sizes", "half a key", "half a name", "half, twice"],
)
def test_a_refusal_is_short_and_can_be_sent(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        StrategySettings.from_json(text)

    assert len(str(caught.value).encode()) < 1000


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "static", "batch_size": 3, "batch_size": 4}',
        '{"name": "dynamic", "default_queue_policy": {"max_queue_size": 3, "max_queue_size": 4}}',
    ],
)
def test_a_setting_that_is_named_twice_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="_size: is named twice"):
        StrategySettings.from_json(text)


def test_a_name_alone_is_a_strategy() -> None:
    assert StrategySettings.parse("static") == StrategySettings(name="static")
    assert StrategySettings.parse('{"name": "static", "batch_size": 3}').batch_size == 3


def test_every_knob_belongs_to_a_strategy() -> None:
    knobs = {name for names in KNOBS.values() for name in names}

    assert knobs == set(StrategySettings.__dataclass_fields__)
