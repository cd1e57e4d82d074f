"""What the settings of the continuous strategy, and of all strategies, change in a plan."""

import pytest
from builders import make_prompt, make_running, make_snapshot, make_waiting

from scheduler_service.planning.snapshot import Decision, Limits, SkipReason, Snapshot
from scheduler_service.planning.strategies.selection import limits_under, strategy_of
from shared.strategy import WHOLE_PREFILL, StrategySettings


def plan(snapshot: Snapshot, **settings: str | int) -> Decision:
    return strategy_of(StrategySettings(**settings)).plan(snapshot)  # type: ignore[arg-type]


def tokens(decision: Decision) -> dict[str, int]:
    return {g.request_id: g.num_tokens for g in (*decision.chunks, *decision.claims)}


def reasons(decision: Decision) -> dict[str, SkipReason]:
    return {skipped.request_id: skipped.reason for skipped in decision.skipped}


def whole(**fields: int) -> Limits:
    return Limits(**{"watermark": 0.0, "token_budget": 100, "chunk_size": WHOLE_PREFILL} | fields)


# Whole prefill.


def test_whole_prompts_are_computed_in_one_step_each_or_wait() -> None:
    running = [make_running("a"), make_prompt("b", 60), make_prompt("c", 60)]

    decision = plan(make_snapshot(running, limits=whole()))

    assert tokens(decision) == {"a": 1, "b": 60}
    assert reasons(decision) == {"c": SkipReason.PREFILL_NOT_CUT}


def test_a_whole_prompt_above_the_budget_goes_beside_the_decodes_alone() -> None:
    running = [make_running("a"), make_prompt("long", 300), make_prompt("b", 10)]

    shorter_first = plan(make_snapshot(running, limits=whole()))
    alone = plan(make_snapshot(running[:2], limits=whole()))

    assert tokens(shorter_first) == {"a": 1, "b": 10}
    assert tokens(alone) == {"a": 1, "long": 300}


def test_a_worker_that_takes_less_in_a_step_gets_less() -> None:
    running = [make_running("a"), make_prompt("long", 300)]

    decision = plan(make_snapshot(running, limits=whole(max_step_tokens=200)))

    assert tokens(decision) == {"a": 1, "long": 199}


def test_waiting_prompts_come_in_whole() -> None:
    waiting = [make_waiting("w", num_prompt_tokens=90), make_waiting("v", num_prompt_tokens=30)]

    decision = plan(make_snapshot(waiting=waiting, limits=whole()))

    assert tokens(decision) == {"w": 90}
    assert reasons(decision) == {"v": SkipReason.PREFILL_NOT_CUT}


def test_static_batches_prefill_whole_prompts_too() -> None:
    waiting = [make_waiting(name, num_prompt_tokens=60) for name in "ab"]

    decision = plan(make_snapshot(waiting=waiting, limits=whole()), name="static", batch_size=2)

    assert tokens(decision) == {"a": 60, "b": 0}


# Guaranteed admission.


def test_guaranteed_admission_promises_all_blocks() -> None:
    # Each can come to need 6 blocks: 32 + 64 - 1 tokens.
    running = [make_running("a", num_charged_blocks=3)]
    waiting = [make_waiting("w"), make_waiting("v")]
    snapshot = make_snapshot(running, waiting, num_total_blocks=17)

    assert tokens(plan(snapshot)) == {"a": 1, "w": 32, "v": 32}
    decision = plan(snapshot, admission="guaranteed")
    assert tokens(decision) == {"a": 1, "w": 32}
    assert reasons(decision) == {"v": SkipReason.NO_FREE_BLOCKS}


# Refill delay.


@pytest.mark.parametrize(("ms_since_admission", "is_let_in"), [(99, False), (100, True)])
def test_the_refill_delay_lets_free_places_gather(ms_since_admission: int, is_let_in: bool) -> None:
    snapshot = make_snapshot(
        [make_running("a")], [make_waiting("w")], ms_since_admission=ms_since_admission
    )

    decision = plan(snapshot, refill_delay_ms=100)

    assert ("w" in tokens(decision)) == is_let_in
    assert reasons(decision) == ({} if is_let_in else {"w": SkipReason.REFILL_DELAY})


def test_an_idle_worker_does_not_wait_for_the_refill_delay() -> None:
    snapshot = make_snapshot(waiting=[make_waiting("w")], ms_since_admission=0)

    assert tokens(plan(snapshot, refill_delay_ms=100)) == {"w": 32}


# Limits of the pool.


@pytest.mark.parametrize(
    ("name", "value"), [("token_budget", 40), ("max_sequences", 1), ("chunk_size", 8)]
)
def test_the_pools_limits_come_before_the_replicas(name: str, value: int) -> None:
    changed = limits_under(StrategySettings(**{name: value}), Limits())
    snapshot = make_snapshot(
        [make_prompt("a", 100)], [make_waiting("w")], limits=Limits(token_budget=500)
    )
    snapshot_under = make_snapshot([make_prompt("a", 100)], [make_waiting("w")], limits=changed)

    assert getattr(changed, name) == value
    assert tokens(plan(snapshot)) != tokens(plan(snapshot_under))


def test_no_budget_beyond_what_the_worker_takes() -> None:
    worker = Limits(max_step_tokens=512, max_worker_sequences=4)
    limits = limits_under(StrategySettings(token_budget=900, max_sequences=64), worker)

    assert (limits.token_budget, limits.max_sequences) == (512, 4)


def test_settings_that_say_nothing_change_nothing() -> None:
    limits = Limits()

    assert limits_under(StrategySettings(), limits) is limits
