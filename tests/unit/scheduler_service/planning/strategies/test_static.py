"""Static batching: who begins together, and that nobody joins."""

from typing import Any

import pytest
from builders import make_prompt, make_running, make_snapshot, make_waiting

from scheduler_service.planning.snapshot import Decision, Limits, SkipReason, Snapshot
from scheduler_service.planning.strategies.static import StaticStrategy


def waiting(num: int, **fields: Any) -> list[Any]:
    return [make_waiting(f"w{i}", **fields) for i in range(num)]


def plan(snapshot: Snapshot, **settings: int) -> Decision:
    return StaticStrategy(**{"batch_size": 3} | settings).plan(snapshot)


def claims(decision: Decision) -> list[str]:
    return [claim.request_id for claim in decision.claims]


def reasons(decision: Decision) -> dict[str, SkipReason]:
    return {skipped.request_id: skipped.reason for skipped in decision.skipped}


def test_exactly_batch_size_requests_begin_all_or_none() -> None:
    decision = plan(make_snapshot(waiting=waiting(5)))

    assert claims(decision) == ["w0", "w1", "w2"]
    assert (decision.forms_batch, decision.claim_at_least) == (True, 3)
    assert reasons(decision) == {"w3": SkipReason.BEHIND_BATCH, "w4": SkipReason.BEHIND_BATCH}


def test_the_batch_size_decides_how_many() -> None:
    assert len(plan(make_snapshot(waiting=waiting(5)), batch_size=4).claims) == 4


def test_a_batch_that_is_not_full_waits() -> None:
    decision = plan(make_snapshot(waiting=waiting(2, age_ms=3_600_000)))

    assert (claims(decision), decision.wait_ms, decision.forms_batch) == ([], None, False)
    assert set(reasons(decision).values()) == {SkipReason.BATCH_FORMING}


@pytest.mark.parametrize(
    ("age_ms", "window_age_ms", "num_claims", "wait_ms"), [(0, 99, 0, 1), (60, 40, 2, None)]
)
def test_after_max_wait_it_begins_with_what_is_there(
    age_ms: int, window_age_ms: int, num_claims: int, wait_ms: int | None
) -> None:
    """The window's own age counts: no time passes unseen between two answers of the store."""
    requests = [make_waiting("old", age_ms=age_ms), make_waiting("new")]
    snapshot = make_snapshot(waiting=requests, window_age_ms=window_age_ms)

    decision = plan(snapshot, max_wait_ms=100)

    assert (len(decision.claims), decision.wait_ms) == (num_claims, wait_ms)


def test_nobody_joins_a_batch_that_runs() -> None:
    running = [make_running("a"), make_prompt("b", 100)]

    decision = plan(make_snapshot(running=running, waiting=waiting(9)))

    assert [(c.request_id, c.num_tokens) for c in decision.chunks] == [("a", 1), ("b", 100)]
    assert not decision.claims
    assert set(reasons(decision).values()) == {SkipReason.BATCH_RUNNING}


def test_the_next_batch_begins_when_the_last_ones_blocks_are_back() -> None:
    ended = make_running("a", is_ending=True)

    ending = plan(make_snapshot(running=[ended], waiting=waiting(3)))
    returning = plan(make_snapshot(waiting=waiting(3), num_returning_blocks=1))

    for decision in (ending, returning):
        assert not decision.claims
        assert set(reasons(decision).values()) == {SkipReason.BLOCKS_RETURNING}
    assert len(plan(make_snapshot(waiting=waiting(3))).claims) == 3


def test_members_have_all_their_blocks_promised_and_others_stay_behind() -> None:
    # 32 + 64 - 1 tokens: 6 blocks each
    decision = plan(make_snapshot(waiting=waiting(3), num_total_blocks=17))

    assert claims(decision) == ["w0", "w1"]
    assert decision.claim_at_least == 2
    assert reasons(decision)["w2"] is SkipReason.NO_FREE_BLOCKS


def test_a_worker_that_takes_fewer_has_smaller_batches_and_waits_for_no_more() -> None:
    for num_waiting in (2, 3):
        snapshot = make_snapshot(waiting=waiting(num_waiting), limits=Limits(max_sequences=2))
        assert len(plan(snapshot).claims) == 2


def test_members_whose_first_tokens_the_step_cannot_hold_come_in_all_the_same() -> None:
    decision = plan(make_snapshot(waiting=waiting(3), limits=Limits(token_budget=40)))

    assert [claim.num_tokens for claim in decision.claims] == [32, 8, 0]


def test_one_that_can_never_fit_is_passed_over() -> None:
    requests = [make_waiting("huge", num_prompt_tokens=20_000), *waiting(3)]

    decision = plan(make_snapshot(waiting=requests))

    assert claims(decision) == ["w0", "w1", "w2"]
    assert reasons(decision)["huge"] is SkipReason.UNFIT_HERE


def test_more_important_requests_are_members_first() -> None:
    requests = [*waiting(3), make_waiting("vip", priority=-1)]

    assert claims(plan(make_snapshot(waiting=requests))) == ["vip", "w0", "w1"]
