"""Whole loads on the virtual clock: when what arrives, and that nothing is lost."""

import random

import pytest
from simulated_loads import STEP_S, make_profile, make_work, run_load, times_of

from shared.cost_model import CostModel

MS = 1_000_000


def test_a_lone_request_takes_its_steps_and_its_overheads():
    overheads = {"submit_ns": 3 * MS, "dispatch_ns": 2 * MS, "deliver_ns": MS}

    measured = run_load(make_work(), profile=make_profile(overheads=overheads))

    (observation,) = measured.observations
    # submit, dispatch, one step, delivery; then steps back to back, planned one ahead
    assert [round(at_s * 1e3, 3) for at_s, _ in observation.arrivals] == [16, 26, 36, 46]
    assert observation.ended_s == pytest.approx(0.046)
    assert measured.steps.first_in_step_s[observation.request_id] == pytest.approx(0.005)


def test_a_plan_is_made_while_the_step_before_it_runs():
    slow_host = make_profile(overheads={"dispatch_ns": 8 * MS})

    measured = run_load(make_work(tokens=50), profile=slow_host)

    assert measured.totals.bubble_ns == 0
    assert measured.ended_s == pytest.approx(0.008 + 50 * STEP_S)


def test_a_host_slower_than_the_steps_leaves_bubbles():
    slow_host = make_profile(overheads={"dispatch_ns": 30 * MS})

    measured = run_load(make_work(tokens=50), profile=slow_host)

    # two steps in every 40 ms: a plan that is two behind waits for its result and the way
    assert measured.ended_s == pytest.approx(50 / 2 * 0.04, rel=0.05)
    assert measured.totals.bubble_ns / measured.ended_s / 1e9 == pytest.approx(0.5, abs=0.05)


def test_the_gap_between_steps_is_a_bubble():
    measured = run_load(make_work(tokens=11), profile=make_profile(overheads={"gap_ns": MS}))

    assert measured.totals.bubble_ns == 10 * MS
    assert measured.ended_s == pytest.approx(11 * STEP_S + 10e-3)


def test_open_loop_requests_leave_at_their_arrival():
    measured = run_load(make_work(1, arrival_s=0.5), make_work(2, arrival_s=2.0))

    assert [o.due_s for o in measured.observations] == [0.5, 2.0]
    assert [times_of(o)[0] for o in measured.observations] == [51, 201]


def test_closed_loop_requests_leave_when_one_ends():
    measured = run_load(*(make_work(n) for n in range(4)), concurrency=2)

    assert [round(o.due_s / STEP_S) for o in measured.observations] == [0, 0, 4, 4]


def test_requests_that_come_together_wait_for_each_other_at_the_replica():
    profile = make_profile(overheads={"submit_each_ns": 15 * MS})

    measured = run_load(make_work(1), make_work(2), profile=profile)

    first, second = (o.arrivals[0][0] for o in measured.observations)
    assert first == pytest.approx(0.025)
    assert second > 0.030 + STEP_S - 1e-9


def test_a_static_batch_answers_at_its_end_and_nobody_joins():
    works = [make_work(1, tokens=2), make_work(2, tokens=6), make_work(3, tokens=1)]

    measured = run_load(*works, strategy="static:2:max_wait_ms=500")

    first, second, third = measured.observations
    assert times_of(first) == times_of(second) == [6]
    assert [n for _, n in first.arrivals] == [2]
    assert times_of(third)[0] > 50  # alone, after max_wait
    assert measured.totals.num_held_sequence_steps == pytest.approx(4, abs=1)


def test_a_static_batch_that_streams_answers_as_it_goes():
    works = [make_work(1, tokens=2), make_work(2, tokens=6)]

    measured = run_load(*works, strategy="static:2:release=stream")

    assert [times_of(o) for o in measured.observations] == [[1, 2], [1, 2, 3, 4, 5, 6]]


def test_a_dynamic_batch_leaves_when_the_oldest_has_waited():
    works = [make_work(1), make_work(2, arrival_s=0.02)]

    measured = run_load(*works, strategy="dynamic:8:max_queue_delay_ms=50:release=stream")

    assert [times_of(o)[0] for o in measured.observations] == [6, 6]


def test_a_static_batch_that_is_never_full_is_told():
    with pytest.raises(ValueError, match="1 requests wait for ever"):
        run_load(make_work(), strategy="static:2:max_wait_ms=0")


def test_what_can_never_run_is_refused_at_once():
    measured = run_load(make_work(1, tokens=10_000), make_work(2))

    assert [o.status for o in measured.observations] == ["INVALID_ARGUMENT", "OK"]


def test_two_workers_share_the_queue():
    works = [make_work(n, tokens=20) for n in range(8)]
    scheduler_args = ["--max-sequences", "2"]

    alone = run_load(*works, scheduler_args=scheduler_args)
    both = run_load(*works, scheduler_args=scheduler_args, num_workers=2)

    assert both.ended_s == pytest.approx(alone.ended_s / 2, rel=0.15)
    assert {len(o.token_ids) for o in both.observations} == {20}


def test_outputs_depend_on_neither_strategy_nor_preemption():
    rng = random.Random(1)
    works = [
        make_work(n, prompt=rng.randint(1, 90), tokens=rng.randint(1, 60), ignore_eos=False)
        for n in range(40)
    ]
    lengths = ["--simulate-lengths", "exponential:30:90"]
    ample = run_load(*works, worker_args=lengths)
    expected = [o.token_ids for o in ample.observations]

    tight = run_load(*works, worker_args=[*lengths, "--num-blocks", "24"])

    assert tight.totals.num_preemptions > 0
    assert tight.totals.num_recomputed_tokens > 0
    assert [o.token_ids for o in tight.observations] == expected
    for strategy in ("static:4", "dynamic:8", "continuous:chunk_size=16"):
        other = run_load(*works, strategy=strategy, worker_args=lengths)
        assert [o.token_ids for o in other.observations] == expected
        assert {o.status for o in other.observations} == {"OK"}


def test_clients_do_not_see_the_stop_token():
    measured = run_load(
        make_work(tokens=50, ignore_eos=False), worker_args=["--simulate-lengths", "fixed:6"]
    )

    (observation,) = measured.observations
    assert len(observation.token_ids) == 6
    assert sum(number for _, number in observation.arrivals) == 5


def test_a_shared_beginning_is_computed_once():
    works = [make_work(1, prompt=64), make_work(1, prompt=64, arrival_s=1.0)]

    measured = run_load(*works)

    assert measured.totals.num_cached_tokens == 48
    assert measured.observations[1].num_cached_tokens == 48


def test_a_cut_leaves_out_what_came_before():
    works = [make_work(n, tokens=100) for n in range(2)]

    whole = run_load(*works)
    cut = run_load(*works, cut_s=0.5)

    assert cut.started_s == 0.5
    assert cut.totals.num_sampled_tokens == pytest.approx(100, abs=2)
    assert len(cut.steps.total_ns) < len(whole.steps.total_ns)


def test_a_refill_delay_spaces_admissions():
    works = [make_work(n, tokens=30, arrival_s=0.001 * n) for n in range(3)]

    measured = run_load(*works, strategy="continuous:refill_delay_ms=100")

    starts = [measured.steps.first_in_step_s[o.request_id] for o in measured.observations]
    assert starts[1] - starts[0] >= 0.1 - STEP_S
    assert starts[1] == starts[2]


def test_time_is_what_the_cost_model_predicts():
    costs = CostModel(base_ns=5e6, per_token_ns=1e6)

    measured = run_load(make_work(prompt=20, tokens=3), profile=make_profile(costs=costs))

    # the last one only releases
    assert measured.steps.total_ns == [25 * MS, 6 * MS, 6 * MS, 0]
