"""A request that may crash its worker runs alone, whatever the strategy."""

import pytest
from builders import make_prompt, make_running, make_snapshot, make_waiting

from scheduler_service.planning.snapshot import Decision, Limits, SkipReason, Snapshot
from scheduler_service.planning.strategies.selection import strategy_of
from shared.strategy import StrategySettings

STRATEGIES = [
    StrategySettings(),
    StrategySettings(name="static", batch_size=2),
    StrategySettings(name="dynamic"),
]


def plan(snapshot: Snapshot, settings: StrategySettings | None = None) -> Decision:
    return strategy_of(settings or StrategySettings()).plan(snapshot)


def claims(decision: Decision) -> list[str]:
    return [claim.request_id for claim in decision.claims]


def reasons(decision: Decision) -> dict[str, SkipReason]:
    return {skipped.request_id: skipped.reason for skipped in decision.skipped}


@pytest.mark.parametrize("settings", STRATEGIES, ids=lambda settings: settings.name)
def test_a_suspect_that_is_first_comes_in_alone(settings: StrategySettings) -> None:
    waiting = [make_waiting("suspect", attempts=2), make_waiting("a"), make_waiting("b")]

    decision = plan(make_snapshot(waiting=waiting), settings)

    assert claims(decision) == ["suspect"]


@pytest.mark.parametrize("settings", STRATEGIES, ids=lambda settings: settings.name)
def test_others_before_it_run_without_it(settings: StrategySettings) -> None:
    waiting = [make_waiting("a"), make_waiting("b"), make_waiting("suspect", attempts=2)]

    assert claims(plan(make_snapshot(waiting=waiting), settings)) == ["a", "b"]


def test_one_crash_is_no_suspicion() -> None:
    waiting = [make_waiting("a", attempts=1), make_waiting("b")]

    assert claims(plan(make_snapshot(waiting=waiting))) == ["a", "b"]


def test_it_waits_for_an_empty_worker_also_for_those_that_are_ending() -> None:
    suspect = make_waiting("suspect", attempts=4)

    for running in (make_running("r"), make_running("r", is_ending=True)):
        decision = plan(make_snapshot([running], [suspect]))
        assert not decision.claims
        assert reasons(decision)["suspect"] is SkipReason.ISOLATED


def test_nobody_joins_it_before_its_next_token() -> None:
    suspect = make_prompt("suspect", 100, is_suspect=True)

    decision = plan(make_snapshot([suspect], [make_waiting("a")]))

    assert not decision.claims
    assert reasons(decision) == {"a": SkipReason.ISOLATED}


def test_under_steady_arrivals_it_gets_its_turn() -> None:
    """It is a blocked head: once so many have passed it, the worker empties."""
    waiting = [make_waiting("suspect", attempts=2, num_bypasses=4), make_waiting("a")]
    snapshot = make_snapshot(
        [make_running("r")], waiting, limits=Limits(max_bypasses=4, watermark=0.0)
    )

    decision = plan(snapshot)

    assert not decision.claims
    assert reasons(decision)["a"] is SkipReason.BEHIND_BLOCKED_HEAD
