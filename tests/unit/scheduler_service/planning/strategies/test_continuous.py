"""Continuous batching, rule by rule."""

from builders import make_prompt, make_running, make_snapshot, make_waiting
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_service.planning.snapshot import (
    Decision,
    Limits,
    PlannedChunk,
    PlannedClaim,
    RunningSequence,
    Skipped,
    SkipReason,
    Snapshot,
    WaitingRequest,
)
from scheduler_service.planning.strategies.continuous import ContinuousStrategy


def plan(snapshot: Snapshot) -> Decision:
    return ContinuousStrategy().plan(snapshot)


def tokens(decision: Decision) -> dict[str, int]:
    return {g.request_id: g.num_tokens for g in (*decision.chunks, *decision.claims)}


def reasons(decision: Decision) -> dict[str, SkipReason]:
    return {skipped.request_id: skipped.reason for skipped in decision.skipped}


def limits(**fields: int | float) -> Limits:
    return Limits(**{"watermark": 0.0} | fields)


# -- decodes --


def test_a_sequence_with_one_pending_token_gets_it() -> None:
    decision = plan(make_snapshot([make_running("a")]))

    assert decision.chunks == (PlannedChunk("a", 1, 0, True),)


def test_decodes_are_never_paused_by_prefill() -> None:
    running = [make_prompt("long", 1000), make_running("a"), make_running("b")]

    decision = plan(make_snapshot(running, limits=limits(token_budget=100)))

    assert tokens(decision) == {"a": 1, "b": 1, "long": 98}


def test_the_token_after_a_full_block_takes_a_new_block() -> None:
    sequence = make_running("a", num_prompt_tokens=32, num_charged_blocks=2)

    decision = plan(make_snapshot([sequence]))

    assert decision.chunks == (PlannedChunk("a", 1, 1, True),)


def test_a_budget_below_the_number_of_decodes_goes_to_those_passed_over_longest() -> None:
    running = [make_running("a"), make_running("b", num_skips=1), make_running("c", num_skips=2)]

    decision = plan(make_snapshot(running, limits=limits(token_budget=2)))

    assert tokens(decision) == {"b": 1, "c": 1}
    assert reasons(decision) == {"a": SkipReason.OVER_TOKEN_BUDGET}


def test_a_sequence_whose_tokens_are_all_in_flight_awaits_their_result() -> None:
    computed = make_running("computed", num_computed_tokens=33, num_output_tokens=1)
    sampled = make_running("sampled", num_output_tokens=8, max_tokens=8)

    decision = plan(make_snapshot([computed, sampled]))

    assert not decision.chunks
    assert set(reasons(decision).values()) == {SkipReason.AWAITS_RESULT}


def test_an_ending_sequence_gets_nothing_and_needs_no_reason() -> None:
    decision = plan(make_snapshot([make_running("a", is_ending=True)]))

    assert decision == Decision()


# -- prompts --


def test_a_prompt_longer_than_the_budget_is_split_over_steps() -> None:
    limited = limits(token_budget=64)

    first = plan(make_snapshot([make_prompt("p", 100)], limits=limited))
    second = plan(make_snapshot([make_prompt("p", 100, num_computed_tokens=64)], limits=limited))

    assert (tokens(first), tokens(second)) == ({"p": 64}, {"p": 36})


def test_chunk_size_bounds_each_prompts_share() -> None:
    running = [make_prompt("p", 100), make_prompt("q", 200)]

    assert tokens(plan(make_snapshot(running))) == {"p": 100, "q": 200}
    assert tokens(plan(make_snapshot(running, limits=limits(chunk_size=16)))) == {"p": 16, "q": 16}


def test_chunk_size_bounds_the_first_chunk_of_a_claim() -> None:
    snapshot = make_snapshot(waiting=[make_waiting("w")], limits=limits(chunk_size=16))

    assert plan(snapshot).claims == (PlannedClaim("w", 16, 3),)


def test_the_shorter_prompt_goes_first_and_the_longer_says_why_it_waits() -> None:
    running = [make_prompt("long", 400), make_prompt("short", 64)]

    decision = plan(make_snapshot(running, limits=limits(token_budget=64)))

    assert tokens(decision) == {"short": 64}
    assert reasons(decision) == {"long": SkipReason.BEHIND_SHORTER_PROMPTS}


def test_a_prompt_with_no_budget_left_by_decodes_is_over_budget() -> None:
    running = [make_running("a"), make_prompt("p", 400)]

    decision = plan(make_snapshot(running, limits=limits(token_budget=1)))

    assert reasons(decision) == {"p": SkipReason.OVER_TOKEN_BUDGET}


def test_a_prompt_skipped_max_prompt_skips_times_goes_before_a_shorter_one() -> None:
    running = [make_prompt("long", 400, num_skips=3), make_prompt("short", 64)]

    patient = plan(make_snapshot(running, limits=limits(token_budget=64, max_prompt_skips=4)))
    eager = plan(make_snapshot(running, limits=limits(token_budget=64, max_prompt_skips=3)))

    assert (tokens(patient), tokens(eager)) == ({"short": 64}, {"long": 64})


def test_max_partial_prompts_bounds_the_prompts_left_half_computed() -> None:
    running = [make_prompt("a", 100), make_prompt("b", 200), make_prompt("c", 300)]
    bounded = limits(chunk_size=16, max_partial_prompts=2)

    decision = plan(make_snapshot(running, limits=bounded))

    assert tokens(decision) == {"a": 16, "b": 16}
    assert reasons(decision) == {"c": SkipReason.INTERLEAVE_BOUND}


def test_a_prompt_that_a_step_completes_needs_no_partial_place() -> None:
    running = [make_prompt("a", 100)]
    waiting = [make_waiting("long", num_prompt_tokens=90), make_waiting("short")]
    bounded = limits(chunk_size=64, max_partial_prompts=1)

    decision = plan(make_snapshot(running, waiting, limits=bounded))

    assert tokens(decision) == {"a": 64, "short": 32}
    assert reasons(decision) == {"long": SkipReason.INTERLEAVE_BOUND}
    assert decision.bypassed == ("long",)


# -- admission --


def test_waiting_requests_are_claimed_in_rank_order_while_the_budget_lasts() -> None:
    waiting = [make_waiting("a"), make_waiting("b"), make_waiting("c")]

    decision = plan(make_snapshot(waiting=waiting, limits=limits(token_budget=40)))

    assert tokens(decision) == {"a": 32, "b": 8}
    assert reasons(decision) == {"c": SkipReason.OVER_TOKEN_BUDGET}


def test_a_claim_is_charged_prompt_log_and_the_next_token_at_once() -> None:
    waiting = [make_waiting("w", num_prompt_tokens=100, num_output_tokens=30)]

    decision = plan(make_snapshot(waiting=waiting, limits=limits(token_budget=10)))

    assert decision.claims == (PlannedClaim("w", 10, 9),)


def test_max_sequences_bounds_the_live_sequences() -> None:
    running = [make_running("a"), make_running("gone", is_ending=True)]
    waiting = [make_waiting("b"), make_waiting("c")]

    decision = plan(make_snapshot(running, waiting, limits=limits(max_sequences=2)))

    assert tokens(decision) == {"a": 1, "b": 32}
    assert reasons(decision) == {"c": SkipReason.SEQUENCE_CAP}


def test_at_a_full_batch_the_more_important_request_is_next() -> None:
    waiting = [make_waiting("patient", priority=5), make_waiting("urgent", priority=0)]
    one_place = limits(max_sequences=2)

    full = plan(make_snapshot([make_running("a"), make_running("b")], waiting, limits=one_place))
    place = plan(make_snapshot([make_running("a")], waiting, limits=one_place))

    assert not full.claims
    assert [claim.request_id for claim in place.claims] == ["urgent"]


def test_the_watermark_stays_free_while_anything_runs() -> None:
    waiting = [make_waiting("w")]  # wants 3 blocks
    pool = {"num_total_blocks": 20, "num_available_blocks": 4}

    beside = plan(make_snapshot([make_running("a")], waiting, limits=limits(), **pool))
    held_off = plan(
        make_snapshot([make_running("a")], waiting, limits=limits(watermark=0.1), **pool)
    )
    alone = plan(make_snapshot([], waiting, limits=limits(watermark=0.1), **pool))

    assert beside.claims and alone.claims
    assert reasons(held_off) == {"w": SkipReason.NO_FREE_BLOCKS}


def test_the_second_claim_of_a_step_leaves_the_watermark() -> None:
    waiting = [make_waiting("a"), make_waiting("b")]

    decision = plan(
        make_snapshot(waiting=waiting, limits=limits(watermark=0.1), num_total_blocks=6)
    )

    assert tokens(decision) == {"a": 32}


def blocked_head(num_bypasses: int = 0) -> WaitingRequest:
    return make_waiting("big", num_prompt_tokens=200, num_bypasses=num_bypasses)


def test_later_requests_that_fit_pass_a_blocked_head_max_bypasses_times() -> None:
    waiting = [blocked_head(num_bypasses=1), *(make_waiting(f"w{i}") for i in range(3))]
    pool = {"num_total_blocks": 20, "num_available_blocks": 10}

    decision = plan(
        make_snapshot([make_running("a")], waiting, limits=limits(max_bypasses=3), **pool)
    )

    assert [claim.request_id for claim in decision.claims] == ["w0", "w1"]
    assert decision.bypassed == ("big", "big")
    assert reasons(decision) == {
        "big": SkipReason.NO_FREE_BLOCKS,
        "w2": SkipReason.BEHIND_BLOCKED_HEAD,
    }


def test_with_no_bypasses_nobody_passes() -> None:
    waiting = [blocked_head(), make_waiting("w")]
    pool = {"num_total_blocks": 20, "num_available_blocks": 10}

    decision = plan(make_snapshot([make_running()], waiting, limits=limits(max_bypasses=0), **pool))

    assert not decision.claims


def test_each_claim_counts_against_every_blocked_request_before_it() -> None:
    waiting = [blocked_head(), make_waiting("also", num_prompt_tokens=190), make_waiting("w")]
    pool = {"num_total_blocks": 20, "num_available_blocks": 10}

    decision = plan(make_snapshot([make_running()], waiting, **pool))

    assert decision.bypassed == ("big", "also")


def test_a_request_that_can_never_fit_here_is_no_head() -> None:
    waiting = [make_waiting("huge", num_prompt_tokens=20_000), make_waiting("w")]

    decision = plan(make_snapshot(waiting=waiting, limits=limits(max_bypasses=0)))

    assert tokens(decision) == {"w": 32}
    assert reasons(decision) == {"huge": SkipReason.UNFIT_HERE}
    assert not decision.bypassed


def test_requests_beyond_the_window_share_one_reason() -> None:
    decision = plan(make_snapshot(num_waiting_beyond=936))

    assert decision.skipped == (Skipped("", SkipReason.BEYOND_WINDOW, 936),)


def test_requests_left_out_of_the_window_as_unfit_are_counted() -> None:
    decision = plan(make_snapshot(num_waiting_unfit=3))

    assert decision.skipped == (Skipped("", SkipReason.UNFIT_HERE, 3),)


def test_one_that_ran_before_leaves_the_next_block_of_everyone() -> None:
    """Else a preempted request would come back only to be the next victim."""
    running = [make_running("a"), make_running("b")]  # each will want more blocks
    pool = {"num_total_blocks": 40, "num_available_blocks": 5}
    fresh = make_waiting("w", num_prompt_tokens=33)
    resumed = make_waiting("w", num_prompt_tokens=32, num_output_tokens=1)

    assert plan(make_snapshot(running, [fresh], **pool)).claims
    assert (
        reasons(plan(make_snapshot(running, [resumed], **pool)))["w"] is SkipReason.NO_FREE_BLOCKS
    )
    assert plan(make_snapshot(running, [resumed], **pool | {"num_available_blocks": 6})).claims
    assert plan(make_snapshot([], [resumed], **pool | {"num_available_blocks": 3})).claims


# -- blocks run short --


def lacking(request_id: str, **fields: int) -> RunningSequence:
    """A decode whose next token wants a block that it does not hold."""
    return make_running(request_id, **{"num_prompt_tokens": 64, "num_charged_blocks": 4} | fields)


FULL = {"num_total_blocks": 20, "num_available_blocks": 0}


def test_the_least_work_in_the_lowest_class_gives_way_when_blocks_run_short() -> None:
    running = [
        lacking("a"),
        make_running("urgent", priority=0, num_prompt_tokens=16),
        make_running("much", priority=3, num_prompt_tokens=160),
        make_running("little", priority=3, num_prompt_tokens=30),
    ]

    decision = plan(make_snapshot(running, **FULL))

    assert decision.preemptions == ("little",)
    assert tokens(decision) == {"urgent": 1, "much": 1}
    assert reasons(decision) == {"a": SkipReason.NO_FREE_BLOCKS, "little": SkipReason.PREEMPTED}


def test_a_step_that_preempts_admits_nobody() -> None:
    running = [lacking("a"), lacking("b", num_prompt_tokens=48, num_charged_blocks=3)]
    waiting = [
        make_waiting("w", num_prompt_tokens=1, max_tokens=1),
        make_waiting("huge", max_tokens=999),
    ]

    decision = plan(make_snapshot(running, waiting, **FULL))

    assert decision.preemptions == ("b",)
    assert not decision.claims
    assert reasons(decision)["w"] is SkipReason.ADMISSION_PAUSED
    assert reasons(decision)["huge"] is SkipReason.UNFIT_HERE


def test_blocks_given_back_are_not_used_before_the_worker_has_reported_them() -> None:
    running = [lacking("a"), make_running("gone", num_charged_blocks=9, is_ending=True)]

    decision = plan(make_snapshot(running, [make_waiting("w")], **FULL))

    assert not decision.chunks
    assert not decision.claims
    assert reasons(decision) == {
        "a": SkipReason.NO_FREE_BLOCKS,
        "w": SkipReason.ADMISSION_PAUSED,
    }


def test_nobody_is_preempted_for_what_blocks_on_their_way_back_will_cover() -> None:
    needy = [lacking("a"), lacking("b")]
    ending = make_running("ending", num_charged_blocks=2, is_ending=True)
    finishing = make_running("finishing", num_output_tokens=8, max_tokens=8)

    assert plan(make_snapshot(needy, **FULL)).preemptions
    assert not plan(make_snapshot([*needy, ending], **FULL)).preemptions
    assert not plan(make_snapshot([*needy, finishing], **FULL)).preemptions
    assert not plan(make_snapshot(needy, num_returning_blocks=2, **FULL)).preemptions


def test_a_sequence_about_to_finish_is_no_victim() -> None:
    running = [
        lacking("a"),
        lacking("b"),
        make_running(
            "finishing", priority=9, num_output_tokens=8, max_tokens=8, num_charged_blocks=1
        ),
    ]

    assert "finishing" not in plan(make_snapshot(running, **FULL)).preemptions


def test_nobody_is_preempted_for_its_own_sake() -> None:
    """The one that would give way is the only one that lacks a block: waiting loses less."""
    running = [lacking("needy", priority=3), make_running("content", num_prompt_tokens=160)]

    decision = plan(make_snapshot(running, **FULL))

    assert not decision.preemptions
    assert tokens(decision) == {"content": 1}
    assert reasons(decision) == {"needy": SkipReason.NO_FREE_BLOCKS}


def test_the_last_sequence_is_never_preempted() -> None:
    assert not plan(make_snapshot([lacking("a")], **FULL)).preemptions
    assert plan(make_snapshot([lacking("a"), lacking("b")], **FULL)).preemptions == ("a",)


def test_a_sequence_alone_goes_on_whatever_the_account_says_if_nothing_is_to_come_back() -> None:
    decode, prompt = lacking("a"), make_prompt("a", 64, num_charged_blocks=1)
    ending = make_running("ending", is_ending=True)

    assert plan(make_snapshot([decode], **FULL)).chunks == (PlannedChunk("a", 1, 0, True),)
    assert plan(make_snapshot([prompt], **FULL)).chunks == (PlannedChunk("a", 64, 0, False),)
    assert not plan(make_snapshot([decode, ending], **FULL)).chunks


def test_somebody_gives_way_when_plans_in_flight_want_more_than_there_is() -> None:
    running = [make_running("much", num_prompt_tokens=160), make_running("little")]

    decision = plan(make_snapshot(running, num_total_blocks=20, num_available_blocks=-1))

    assert decision.preemptions == ("little",)
    assert tokens(decision) == {"much": 1}


def test_blocks_that_are_left_go_to_those_who_would_give_way_last() -> None:
    running = [lacking("patient", priority=3), lacking("urgent"), lacking("middle", priority=1)]

    decision = plan(make_snapshot(running, num_total_blocks=20, num_available_blocks=2))

    assert tokens(decision) == {"urgent": 1, "middle": 1}
    assert not decision.preemptions


# -- any snapshot --


@st.composite
def running_sequences(draw: st.DrawFn, request_id: str) -> RunningSequence:
    num_prompt_tokens = draw(st.integers(1, 200))
    max_tokens = draw(st.integers(1, 40))
    num_output_tokens = draw(st.integers(0, max_tokens))
    num_tokens = num_prompt_tokens + num_output_tokens
    return make_running(
        request_id,
        priority=draw(st.integers(0, 2)),
        rank=draw(st.integers(0, 99)),
        num_prompt_tokens=num_prompt_tokens,
        num_output_tokens=num_output_tokens,
        max_tokens=max_tokens,
        num_computed_tokens=draw(st.one_of(st.just(num_tokens - 1), st.integers(0, num_tokens))),
        num_charged_blocks=draw(st.integers(0, 15)),
        num_skips=draw(st.integers(0, 10)),
        is_ending=draw(st.booleans()) and draw(st.booleans()),
    )


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    num_running, num_waiting = draw(st.integers(0, 8)), draw(st.integers(0, 8))
    return make_snapshot(
        [draw(running_sequences(f"r{i}")) for i in range(num_running)],
        [
            make_waiting(
                f"w{i}",
                priority=draw(st.integers(0, 2)),
                num_prompt_tokens=draw(st.integers(1, 200)),
                num_output_tokens=draw(st.integers(0, 20)),
                num_bypasses=draw(st.integers(0, 5)),
            )
            for i in range(num_waiting)
        ],
        limits=limits(
            token_budget=draw(st.integers(1, 300)),
            max_sequences=draw(st.integers(1, 10)),
            chunk_size=draw(st.integers(0, 64)),
            max_bypasses=draw(st.integers(0, 5)),
            max_prompt_skips=draw(st.integers(0, 10)),
            max_partial_prompts=draw(st.integers(0, 3)),
            watermark=draw(st.sampled_from([0.0, 0.02, 0.3])),
        ),
        num_total_blocks=draw(st.integers(1, 200)),
        num_available_blocks=draw(st.integers(-3, 60)),
    )


@settings(deadline=None)
@given(snapshots())
def test_no_plan_exceeds_budget_cap_or_blocks(snapshot: Snapshot) -> None:
    decision = plan(snapshot)

    grants = (*decision.chunks, *decision.claims)
    assert all(grant.num_tokens >= 1 for grant in grants)
    assert decision.num_tokens <= snapshot.limits.token_budget
    assert sum(g.num_new_blocks for g in grants) <= max(0, snapshot.num_available_blocks)
    num_live = sum(not s.is_ending for s in snapshot.running)
    assert not decision.claims or num_live + len(decision.claims) <= snapshot.limits.max_sequences


@settings(deadline=None)
@given(snapshots())
def test_everybody_gets_tokens_or_one_reason(snapshot: Snapshot) -> None:
    decision = plan(snapshot)

    placed = [*tokens(decision), *(skipped.request_id for skipped in decision.skipped)]
    live = [s.request_id for s in snapshot.running if not s.is_ending]
    assert sorted(placed) == sorted([*live, *(w.request_id for w in snapshot.waiting)])
    skipped = {s.request_id for s in decision.skipped if s.reason is SkipReason.PREEMPTED}
    assert skipped == set(decision.preemptions)


@settings(deadline=None)
@given(snapshots())
def test_a_victim_is_never_more_important_than_those_it_makes_room_for(snapshot: Snapshot) -> None:
    decision = plan(snapshot)

    priority = {s.request_id: s.priority for s in snapshot.running}
    stay = [
        priority[name]
        for name, reason in reasons(decision).items()
        if reason is SkipReason.NO_FREE_BLOCKS and name in priority
    ]
    for victim in decision.preemptions:
        assert all(priority[victim] >= other for other in stay)


@settings(deadline=None)
@given(snapshots())
def test_nobody_is_passed_more_often_than_allowed(snapshot: Snapshot) -> None:
    decision = plan(snapshot)

    for waiting in snapshot.waiting:
        num_passes = decision.bypassed.count(waiting.request_id)
        allowed = max(0, snapshot.limits.max_bypasses - waiting.num_bypasses)
        assert num_passes <= allowed


@settings(deadline=None)
@given(snapshots())
def test_the_same_snapshot_gives_the_same_decision(snapshot: Snapshot) -> None:
    assert plan(snapshot) == plan(snapshot)
