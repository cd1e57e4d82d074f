"""Step records as the follower and the calibration read them."""

from shared.types import BlockCounts
from tokentide.commands.readings import Scheduled, Step


def make_step(*scheduled: Scheduled, num_sampled: int) -> Step:
    return Step(
        worker="w",
        step_id=1,
        scheduled=scheduled,
        blocks=BlockCounts(total=1, free=1, cached=0, held=0),
        num_waiting=0,
        num_running=0,
        num_sampled=num_sampled,
    )


def first(request_id: str, num_tokens: int) -> Scheduled:
    return Scheduled(request_id, num_tokens, False, True)


def later(request_id: str, num_tokens: int = 1) -> Scheduled:
    return Scheduled(request_id, num_tokens, num_tokens == 1)
