"""The best of those that meet the SLO; where none does, the closest."""

import pytest
from advice import make_candidate, places_of
from hypothesis import given
from hypothesis import strategies as st

from tokentide.advisor.figures import Slo
from tokentide.advisor.judging import GOODPUT, Judge, front


def test_the_most_tokens_within_the_slo_win() -> None:
    judge = Judge(slo=Slo(itl_s=0.1))
    candidates = [
        make_candidate(1, 100, itl_s=0.05),
        make_candidate(2, 300, itl_s=0.15),
        make_candidate(3, 200, itl_s=0.09),
    ]

    assert places_of(judge.ranked(candidates)) == [3, 1, 2]


def test_where_none_meets_it_the_closest_comes_first() -> None:
    judge = Judge(slo=Slo(ttft_s=0.1, itl_s=0.1))
    candidates = [
        make_candidate(1, 500, ttft_s=0.9, itl_s=0.05),
        make_candidate(2, 100, ttft_s=0.2, itl_s=0.05),
        make_candidate(3, 300, ttft_s=0.05, itl_s=0.4),
    ]

    ranked = judge.ranked(candidates)

    assert places_of(ranked) == [2, 3, 1]
    assert not judge.meets(ranked[0].figures)


def test_of_those_that_a_simulation_does_not_tell_apart_the_quicker_wins() -> None:
    judge = Judge(slo=Slo(itl_s=0.1))
    candidates = [
        make_candidate(1, 100.5, itl_s=0.09),
        make_candidate(2, 100.0, itl_s=0.04),
        make_candidate(3, 98.0, itl_s=0.01),
    ]

    assert places_of(judge.ranked(candidates)) == [2, 1, 3]


def test_a_time_that_was_not_asked_is_no_price_for_one_that_is_met_anyway() -> None:
    judge = Judge(slo=Slo(itl_s=0.05))
    candidates = [
        make_candidate(3, 2569.1, ttft_s=0.0777, itl_s=0.00109),
        make_candidate(4, 2579.4, ttft_s=0.0021, itl_s=0.0011),
        make_candidate(5, 2560.0, ttft_s=0.0043, itl_s=0.001),
    ]

    assert places_of(judge.ranked(candidates)) == [4, 5, 3]


def test_a_tenth_below_what_is_asked_is_worth_other_time() -> None:
    judge = Judge(slo=Slo(itl_s=0.05))
    candidates = [
        make_candidate(1, 100, ttft_s=0.1, itl_s=0.0495),
        make_candidate(2, 100, ttft_s=0.3, itl_s=0.044),
        make_candidate(3, 100, ttft_s=0.9, itl_s=0.040),
    ]

    assert places_of(judge.ranked(candidates)) == [2, 3, 1]


@given(
    figures=st.lists(
        st.tuples(
            st.floats(90, 110), st.floats(0.001, 1), st.floats(0.001, 0.1), st.floats(0.1, 9)
        ),
        min_size=1,
        max_size=12,
    ),
    slo=st.sampled_from([Slo(), Slo(itl_s=0.05), Slo(ttft_s=0.5), Slo(ttft_s=0.5, itl_s=0.05)]),
)
def test_what_is_recommended_is_on_the_front(
    figures: list[tuple[float, float, float, float]], slo: Slo
) -> None:
    candidates = [
        make_candidate(place, tokens, ttft_s=ttft, itl_s=itl, end_to_end_s=end_to_end)
        for place, (tokens, ttft, itl, end_to_end) in enumerate(figures, start=1)
    ]
    judge = Judge(slo=slo)
    meeting = [c for c in candidates if judge.meets(c.figures)]

    best = judge.ranked(candidates)[0]

    if meeting:
        assert best in front(meeting)


def test_goodput_counts_requests_that_meet_it_whatever_the_whole_load_does() -> None:
    judge = Judge(slo=Slo(itl_s=0.1), objective=GOODPUT)
    candidates = [
        make_candidate(1, 500, itl_s=0.05, goodput_per_s=1.0),
        make_candidate(2, 100, itl_s=0.15, goodput_per_s=2.0),
        make_candidate(3, 900, itl_s=0.15, goodput_per_s=0.0),
    ]

    assert places_of(judge.ranked(candidates)) == [2, 1, 3]
    assert not judge.meets(candidates[2].figures)


def test_an_unknown_objective_is_refused() -> None:
    with pytest.raises(ValueError, match="none of: throughput, goodput"):
        Judge(slo=Slo(), objective="luck")


def test_the_front_has_those_that_no_other_beats_in_all_three() -> None:
    candidates = [
        make_candidate(1, 100, ttft_s=0.1, itl_s=0.05),
        make_candidate(2, 200, ttft_s=0.2, itl_s=0.06),
        make_candidate(3, 150, ttft_s=0.3, itl_s=0.07),
        make_candidate(4, 90, ttft_s=0.3, itl_s=0.01),
        make_candidate(5, 200.5, ttft_s=0.2, itl_s=0.06),
    ]

    assert places_of(front(candidates)) == [5, 1, 4], "the second is the fifth, within 1 %"


def test_of_two_that_are_equally_close_the_better_in_both_times_comes_first() -> None:
    judge = Judge(slo=Slo(ttft_s=0.5, itl_s=0.06))
    candidates = [
        make_candidate(64, 742.5, ttft_s=0.4947, itl_s=0.0717),
        make_candidate(90, 743.6, ttft_s=0.3288, itl_s=0.0723),
    ]

    assert places_of(judge.ranked(candidates)) == [90, 64]


def test_without_an_slo_little_throughput_is_not_bought_with_much_time() -> None:
    judge = Judge(slo=Slo())
    candidates = [
        make_candidate(1, 100.0, ttft_s=1.0, itl_s=0.05),
        make_candidate(2, 100.5, ttft_s=1.1, itl_s=0.05),
        make_candidate(3, 102.0, ttft_s=9.0, itl_s=0.09),
    ]

    assert places_of(judge.ranked(candidates[:2])) == [1, 2]
    assert places_of(judge.ranked(candidates))[0] == 3


def test_in_an_open_loop_all_that_keep_up_are_equal_and_the_quickest_wins() -> None:
    judge = Judge(slo=Slo(itl_s=0.1))
    candidates = [
        make_candidate(1, 102.0, itl_s=0.09, offered_tokens_per_s=101.0),
        make_candidate(2, 100.0, itl_s=0.04, offered_tokens_per_s=101.0),
    ]

    assert places_of(judge.ranked(candidates)) == [2, 1]


def test_the_front_has_no_line_that_looks_beaten_in_its_table() -> None:
    candidates = [
        make_candidate(1, 200.0, ttft_s=0.2, itl_s=0.00204),
        make_candidate(2, 190.0, ttft_s=0.3, itl_s=0.00196),
    ]

    assert places_of(front(candidates)) == [1], "both gaps are 2.0 ms to a reader"
