"""What a calibration takes from the step records."""

from dataclasses import replace

from step_records import first, later, make_step

from tokentide.commands.readings import Scheduled, Step
from tokentide.simulator.calibration import Seen


def timed(total_ns: int, *scheduled: Scheduled, num_sampled: int) -> Step:
    step = make_step(*scheduled, num_sampled=num_sampled)
    return replace(step, timings=replace(step.timings, total_ns=total_ns))


def test_the_way_to_the_first_token_is_all_steps_of_a_long_prompt() -> None:
    seen = Seen()
    seen.follower.expect("a", 10, 3)

    seen.add(timed(100, first("a", 6), num_sampled=0))
    seen.add(timed(70, later("a", 6), num_sampled=1))
    seen.add(timed(5, later("a"), num_sampled=1))
    seen.add(timed(900, first("of another", 6), num_sampled=1))

    assert dict(seen.first_token_ns) == {"a": 170}


def test_two_calibrations_share_no_prefix_cache() -> None:
    assert Seen().salt != Seen().salt
