"""What was in a step, from its record and all records before."""

from step_records import first, later, make_step

from shared.cost_model import StepShape
from tokentide.simulator.step_follower import StepFollower


def test_a_request_is_followed_from_chunk_to_chunk():
    follower = StepFollower()
    follower.expect("a", 10, 3)

    shapes = [
        follower.shape(make_step(first("a", 6), num_sampled=0)),
        follower.shape(make_step(later("a", 6), num_sampled=1)),  # clamped to the 4 that are left
        follower.shape(make_step(later("a"), num_sampled=1)),
    ]

    assert shapes == [
        StepShape.of_chunks([(0, 6, False)]),
        StepShape.of_chunks([(6, 4, True)]),
        StepShape.of_chunks([(10, 1, True)]),
    ]


def test_nothing_comes_after_the_last_token():
    follower = StepFollower()
    follower.expect("a", 4, 1)
    follower.shape(make_step(first("a", 4), num_sampled=1))

    shape = follower.shape(make_step(later("a"), num_sampled=0))

    assert shape is not None
    assert shape.num_tokens == 0


def test_a_step_with_a_stranger_is_left_out_and_the_others_are_followed_no_more():
    follower = StepFollower()
    follower.expect("a", 4, 9)

    assert follower.shape(make_step(first("a", 4), first("x", 3), num_sampled=2)) is None
    assert follower.shape(make_step(later("a"), num_sampled=1)) is None
    assert follower.num_left_out == 2


def test_a_preempted_request_is_followed_no_more():
    follower = StepFollower()
    follower.expect("a", 4, 9)
    follower.shape(make_step(first("a", 4), num_sampled=1))

    assert follower.shape(make_step(first("a", 5), num_sampled=1)) is None


def test_a_record_that_says_otherwise_is_not_believed():
    follower = StepFollower()
    follower.expect("a", 10, 3)

    assert follower.shape(make_step(first("a", 6), num_sampled=1)) is None
