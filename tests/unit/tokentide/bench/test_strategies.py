"""Strategies as they are written on a command line."""

import pytest

from shared.strategy import StrategySettings
from tokentide.bench.strategies import parse_strategies, parse_strategy


def test_a_number_is_the_batch_size() -> None:
    assert parse_strategy("static:16").settings.batch_size == 16
    dynamic = parse_strategy("dynamic:4").settings
    assert (dynamic.max_batch_size, dynamic.preferred_batch_sizes) == (4, (4,))


def test_settings_have_their_own_names_and_override_the_benchmarks_defaults() -> None:
    static = parse_strategy("static:8:max_wait_ms=0:release=stream").settings
    dynamic = parse_strategy("dynamic:preferred_batch_sizes=4/8:preserve_ordering=true").settings

    assert static == StrategySettings(name="static", batch_size=8, release="stream")
    assert dynamic.preferred_batch_sizes == (4, 8)
    assert dynamic.preserve_ordering
    assert parse_strategy("continuous:chunk_size=-1").settings == StrategySettings(chunk_size=-1)


def test_static_goes_with_what_is_there_lest_the_last_requests_wait_for_ever() -> None:
    assert parse_strategy("static:8").settings.max_wait_ms > 0


@pytest.mark.parametrize(
    "spec",
    [
        "greedy",
        "continuous:8",
        "static:0",
        "static:8:release=never",
        "static:max_queue_delay_ms=4",
        "dynamic:4:preferred_batch_sizes=8",
        "dynamic:max_batch_size=x",
        "static:100:batch_size=3",
        "static:max_wait_ms=1:max_wait_ms=2",
        "dynamic:preserve_ordering=yes",
        "static,static",
        ",",
    ],
)
def test_what_cannot_be_is_one_line(spec: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        parse_strategies(spec)
