"""Dynamic batching against Triton's documented rules, as a reference model of few lines."""

from typing import Any

import pytest
from builders import make_running, make_snapshot, make_waiting
from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.planning.snapshot import Decision, Limits, SkipReason, Snapshot
from scheduler_service.planning.strategies.dynamic import DynamicStrategy
from shared.strategy import QueuePolicy, StrategySettings


def plan(snapshot: Snapshot, **settings: Any) -> Decision:
    chosen = StrategySettings(name="dynamic", **{"max_batch_size": 8} | settings)
    chosen.check()
    return DynamicStrategy(chosen).plan(snapshot)


def queue(*ages_ms: int, **fields: Any) -> list[Any]:
    return [make_waiting(f"w{i}", age_ms=age_ms, **fields) for i, age_ms in enumerate(ages_ms)]


def claims(decision: Decision) -> list[str]:
    return [claim.request_id for claim in decision.claims]


def reasons(decision: Decision) -> dict[str, SkipReason]:
    return {skipped.request_id: skipped.reason for skipped in decision.skipped}


def expected_size(
    num_waiting: int, oldest_ms: int, sizes: tuple[int, ...], max_size: int, delay_ms: int
) -> int:
    """docs/user_guide/batcher.md, "Preferred Batch Sizes" and "Delayed Batching", in our words: the largest
    preferred size that the queue holds; else nothing before the delay is over; then all, up to the
    maximum. Without preferred sizes the maximum is preferred."""
    for size in sorted(sizes or (max_size,), reverse=True):
        if size <= num_waiting:
            return size
    return min(num_waiting, max_size) if num_waiting and oldest_ms >= delay_ms else 0


@given(
    ages_ms=st.lists(st.integers(0, 400), max_size=20),
    max_size=st.integers(1, 10),
    sizes=st.sets(st.integers(1, 10), max_size=3),
    delay_ms=st.sampled_from([0, 1, 100, 250]),
    window_age_ms=st.integers(0, 100),
)
def test_the_batch_is_the_one_that_tritons_rules_form(
    ages_ms: list[int], max_size: int, sizes: set[int], delay_ms: int, window_age_ms: int
) -> None:
    preferred = tuple(size for size in sorted(sizes) if size <= max_size)
    snapshot = make_snapshot(waiting=queue(*ages_ms), window_age_ms=window_age_ms)

    decision = plan(
        snapshot,
        max_batch_size=max_size,
        preferred_batch_sizes=preferred,
        max_queue_delay_ms=delay_ms,
    )

    oldest_ms = max(ages_ms, default=0) + window_age_ms
    size = expected_size(len(ages_ms), oldest_ms, preferred, max_size, delay_ms)
    assert claims(decision) == [f"w{i}" for i in range(size)]
    assert decision.claim_at_least == max(1, size)
    if size or not ages_ms:
        assert decision.wait_ms is None
    else:
        assert decision.wait_ms == delay_ms - oldest_ms


def test_one_more_than_the_largest_preferred_size_leaves_one_behind() -> None:
    decision = plan(make_snapshot(waiting=queue(*[0] * 5)), preferred_batch_sizes=(2, 4))

    assert claims(decision) == ["w0", "w1", "w2", "w3"]
    assert reasons(decision) == {"w4": SkipReason.BEHIND_BATCH}


def test_not_the_smallest_preferred_size() -> None:
    assert (
        len(plan(make_snapshot(waiting=queue(*[0] * 4)), preferred_batch_sizes=(2, 4)).claims) == 4
    )


def test_the_delay_is_not_over_early() -> None:
    snapshot = make_snapshot(waiting=queue(99, 0))

    decision = plan(snapshot, preferred_batch_sizes=(4,), max_queue_delay_ms=100)

    assert (claims(decision), decision.wait_ms) == ([], 1)
    assert set(reasons(decision).values()) == {SkipReason.BATCH_FORMING}


def test_nobody_joins_a_batch_that_runs() -> None:
    decision = plan(make_snapshot(running=[make_running("a")], waiting=queue(*[0] * 8)))

    assert not decision.claims
    assert set(reasons(decision).values()) == {SkipReason.BATCH_RUNNING}


def test_no_size_is_preferred_that_the_worker_does_not_take() -> None:
    snapshot = make_snapshot(waiting=queue(*[0] * 8), limits=Limits(max_sequences=4))

    assert len(plan(snapshot, preferred_batch_sizes=(2, 8)).claims) == 2
    assert len(plan(snapshot).claims) == 4


def test_where_an_order_is_preserved_one_worker_answers() -> None:
    snapshot = make_snapshot(waiting=queue(*[0] * 8), is_first_worker=False)

    decision = plan(snapshot, preserve_ordering=True)

    assert not decision.claims
    assert set(reasons(decision).values()) == {SkipReason.ORDER_PRESERVED}
    assert plan(snapshot).claims


# Queue policies.


@pytest.mark.parametrize(("age_ms", "rejects"), [(499, ()), (500, ("w0",))])
def test_a_request_in_the_queue_for_too_long_is_rejected(
    age_ms: int, rejects: tuple[str, ...]
) -> None:
    policy = QueuePolicy(default_timeout_ms=500)
    decision = plan(
        make_snapshot(waiting=queue(age_ms, 0)),
        default_queue_policy=policy,
        max_queue_delay_ms=10_000,
    )

    assert decision.rejects == rejects
    assert (reasons(decision)["w0"] is SkipReason.QUEUE_TIMEOUT) == bool(rejects)


def test_a_batch_that_runs_does_not_keep_the_late_from_being_rejected() -> None:
    decision = plan(
        make_snapshot(running=[make_running("a")], waiting=queue(500)),
        default_queue_policy=QueuePolicy(default_timeout_ms=500),
    )

    assert decision.rejects == ("w0",)


@pytest.mark.parametrize(
    ("allows", "own_ms", "default_ms", "is_late"),
    [
        (True, 100, 500, True),
        (False, 100, 500, False),  # not allowed to say so itself
        (True, 900, 150, True),  # its own may only shorten
        (True, 100, 0, True),
        (True, 0, 500, False),
    ],
)
def test_a_requests_own_timeout_counts_if_allowed_and_only_shortens(
    allows: bool, own_ms: int, default_ms: int, is_late: bool
) -> None:
    policy = QueuePolicy(default_timeout_ms=default_ms, allow_timeout_override=allows)
    decision = plan(
        make_snapshot(waiting=queue(200, queue_timeout_ms=own_ms)),
        default_queue_policy=policy,
        max_queue_delay_ms=10_000,
    )

    assert decision.rejects == (("w0",) if is_late else ())


def test_delayed_requests_go_behind_all_of_their_level_that_are_in_time() -> None:
    policy = QueuePolicy(default_timeout_ms=500, timeout_action="delay")
    decision = plan(
        make_snapshot(waiting=queue(600, 0, 0)),
        preferred_batch_sizes=(2,),
        default_queue_policy=policy,
    )

    assert claims(decision) == ["w1", "w2"]
    assert not decision.rejects


def test_each_priority_has_its_policy() -> None:
    waiting = [
        make_waiting("high", priority=0, age_ms=50),
        make_waiting("low", priority=1, age_ms=50),
    ]
    decision = plan(
        make_snapshot(waiting=waiting),
        priority_queue_policy={1: QueuePolicy(default_timeout_ms=50)},
        max_queue_delay_ms=10_000,
    )

    assert decision.rejects == ("low",)
