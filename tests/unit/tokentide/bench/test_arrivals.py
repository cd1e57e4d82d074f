"""What an open loop offered and what was served meanwhile, apart from the tail in which nobody arrives."""

import pytest

from tokentide.bench.arrivals import arrival_figures, open_loop_note, window_of
from tokentide.bench.load import Observation


def make_load(num_requests: int, takes_s: float, start_s: float = 0.0) -> list[Observation]:
    """One a second from second 1 on, each two tokens, at its middle and at its end."""
    due_s = [start_s + number for number in range(1, num_requests + 1)]
    return [
        Observation(
            request_id=str(at_s),
            due_s=at_s,
            ended_s=at_s + takes_s,
            arrivals=[(at_s + takes_s / 2, 1), (at_s + takes_s, 1)],
            token_ids=[1, 2],
        )
        for at_s in due_s
    ]


@pytest.mark.parametrize("num_requests", [20, 200])
def test_a_service_that_keeps_up_yields_what_is_offered_however_long_the_load(
    num_requests: int,
) -> None:
    found = arrival_figures(make_load(num_requests, takes_s=4.0), 0.0)

    assert found is not None
    assert found["offered_requests_per_s"] == found["requests_per_s"] == pytest.approx(1)
    assert found["offered_tokens_per_s"] == found["generated_tokens_per_s"] == pytest.approx(2)
    assert found["num_in_system_at_middle"] == found["num_in_system_at_last"] == 4
    assert found["tail_s"] == pytest.approx(4)


def test_a_backlog_that_grows_shows() -> None:
    slow = [
        Observation(request_id=str(n), due_s=n, ended_s=3 * n, arrivals=[(3 * n, 2)])
        for n in range(1, 31)
    ]

    found = arrival_figures(slow, 0.0)

    assert found is not None
    assert found["num_in_system_at_last"] == 2 * found["num_in_system_at_middle"] == 20
    assert found["requests_per_s"] == pytest.approx(1 / 3)
    assert found["tail_s"] == pytest.approx(60)


def test_what_came_before_the_cut_is_in_the_system_but_not_in_the_window() -> None:
    observations = make_load(20, takes_s=4.0)

    assert window_of(observations, 10.0) == (15.0, 20.0)
    found = arrival_figures(observations, 10.0)
    assert found is not None and found["window_s"] == 5
    assert found["num_in_system_at_middle"] == 4


def test_requests_that_all_come_at_once_have_no_time_of_arrivals() -> None:
    at_once = [Observation(request_id="a", due_s=0.0, ended_s=1.0)]

    assert arrival_figures(at_once, 0.0) is None
    assert open_loop_note([{"arrivals": None}, {}]) == ""
    assert "tail" in open_loop_note([{"arrivals": {"tail_s": 1.0}}])
