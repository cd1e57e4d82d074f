"""Who is served first, and who gives way."""

from builders import make_prompt, make_running, make_waiting

from scheduler_service.planning.ordering import (
    preemption_order,
    prompt_order,
    rank_order,
    turn_order,
)


def names(sequences: list) -> list[str]:
    return [s.request_id for s in sequences]


def test_waiting_requests_rank_by_class_then_as_they_stand_in_the_window() -> None:
    waiting = [
        make_waiting("late", priority=5),
        make_waiting("a", priority=1),
        make_waiting("b", priority=1),
        make_waiting("urgent", priority=0),
    ]

    assert names(rank_order(waiting)) == ["urgent", "a", "b", "late"]


def test_the_prompt_with_least_left_goes_first() -> None:
    long, short = make_prompt("long", 500, rank=1), make_prompt("short", 100, rank=2)
    nearly_done = make_prompt("nearly", 500, num_computed_tokens=450, rank=3)

    assert names(prompt_order([long, short, nearly_done], 8)) == ["nearly", "short", "long"]


def test_equal_prompts_go_in_order_of_arrival() -> None:
    prompts = [make_prompt("second", 100, rank=2), make_prompt("first", 100, rank=1)]

    assert names(prompt_order(prompts, 8)) == ["first", "second"]


def test_a_more_important_prompt_goes_before_a_shorter_one() -> None:
    prompts = [make_prompt("short", 10, priority=1), make_prompt("urgent", 500, priority=0)]

    assert names(prompt_order(prompts, 8)) == ["urgent", "short"]


def test_prompts_passed_over_often_enough_go_first_oldest_first_whatever_their_class() -> None:
    prompts = [
        make_prompt("short", 10, rank=9),
        make_prompt("young", 400, rank=5, num_skips=30),
        make_prompt("old", 500, rank=2, num_skips=8, priority=7),
        make_prompt("patient", 450, rank=1, num_skips=7),
    ]

    assert names(prompt_order(prompts, 8)) == ["old", "young", "short", "patient"]


def test_decodes_take_turns_longest_passed_over_first() -> None:
    decodes = [
        make_running("served", rank=0),
        make_running("twice", rank=2, num_skips=2),
        make_running("once", rank=1, num_skips=1),
    ]

    assert names(turn_order(decodes)) == ["twice", "once", "served"]


def test_the_least_important_class_gives_way_first() -> None:
    sequences = [
        make_running("urgent", priority=0, num_computed_tokens=1),
        make_running("patient", priority=3, num_computed_tokens=900),
    ]

    assert names(preemption_order(sequences)) == ["patient", "urgent"]


def test_within_a_class_the_least_work_to_lose_gives_way_first_then_the_newest() -> None:
    sequences = [
        make_running("much", num_computed_tokens=900, rank=3),
        make_running("old", num_computed_tokens=10, rank=1),
        make_running("new", num_computed_tokens=10, rank=2),
    ]

    assert names(preemption_order(sequences)) == ["new", "old", "much"]
