"""From step records to what became of each request."""

from itertools import pairwise

import pytest

from shared.types import BlockCounts
from tokentide.bench.operations_watch import StepSpan
from tokentide.bench.timeline_segments import Kind, Segment, request_segments
from tokentide.commands.readings import Scheduled, Step

BLOCKS = BlockCounts(total=1, free=1, cached=0, held=0)


def make_spans(*steps: str, began_s: float = 10.0, worker: str = "w") -> list[StepSpan]:
    """Steps of one second, one after the other: `Ab` is a prompt chunk of a and a decode of b."""
    return [
        StepSpan(
            began_s=began_s + number,
            ended_s=began_s + number + 1,
            step=Step(
                worker=worker,
                step_id=number,
                scheduled=tuple(Scheduled(n.lower(), 1, n.islower()) for n in names.strip("-")),
                blocks=BLOCKS,
                num_waiting=0,
                num_running=0,
            ),
        )
        for number, names in enumerate(steps)
    ]


def segments_of(
    request_id: str, spans: list[StepSpan], *, due_s: float = 9.0, holds_place: bool = False
) -> list[Segment]:
    segments = request_segments(request_id, due_s, spans, holds_place=holds_place)
    assert all(a.end_s == b.start_s for a, b in pairwise(segments)), "no gap, no overlap"
    return segments


def short(segments: list[Segment]) -> list[tuple[str, float]]:
    """Kind and length."""
    return [(segment.kind.value, segment.end_s - segment.start_s) for segment in segments]


def test_a_request_waits_has_its_prompt_computed_and_decodes() -> None:
    spans = make_spans("B", "Ab", "Ab", "ab", "a")

    assert short(segments_of("a", spans)) == [("waiting", 2), ("prefill", 2), ("decode", 2)]


def test_steps_without_it_are_shown_between() -> None:
    spans = make_spans("Ab", "b", "b", "Ab", "a")

    assert short(segments_of("a", spans)) == [
        ("waiting", 1),
        ("prefill", 1),
        ("passed over", 2),
        ("prefill", 1),
        ("decode", 1),
    ]


def test_the_pause_before_a_step_that_follows_directly_is_the_steps() -> None:
    spans = make_spans("A") + make_spans("a", "a", began_s=11.5)

    assert short(segments_of("a", spans)) == [("waiting", 1), ("prefill", 1), ("decode", 2.5)]


def test_in_a_batch_its_place_is_held_until_the_last_member_has_ended() -> None:
    spans = make_spans("ABC", "abc", "bc", "c", "D", "d")

    held = segments_of("a", spans, holds_place=True)

    assert short(held) == [("waiting", 1), ("prefill", 1), ("decode", 1), ("held", 2)]
    assert segments_of("c", spans, holds_place=True)[-1].kind is Kind.DECODE
    assert short(segments_of("d", spans, holds_place=True))[-1] == ("decode", 1)


def test_members_that_never_met_in_a_step_are_of_one_batch_if_another_links_them() -> None:
    spans = make_spans("AB", "bC", "c", "D")

    assert short(segments_of("a", spans, holds_place=True))[-1] == ("held", 2)


def test_a_continuous_request_holds_nothing() -> None:
    spans = make_spans("AB", "ab", "b")

    assert segments_of("a", spans)[-1].end_s == 12.0


def test_other_workers_steps_do_not_count() -> None:
    spans = make_spans("A", "a") + make_spans("B", "b", "b", "b", worker="other")

    assert short(segments_of("a", spans, holds_place=True)) == [
        ("waiting", 1),
        ("prefill", 1),
        ("decode", 1),
    ]


def test_records_that_seem_to_overlap_are_set_apart() -> None:
    spans = make_spans("A") + make_spans("a", began_s=10.4)

    assert [s.end_s for s in segments_of("a", spans)] == pytest.approx([10.0, 11.0, 11.4])


def test_a_step_that_only_releases_is_none_and_a_request_in_no_step_has_nothing() -> None:
    spans = make_spans("A", "-", "a")

    assert short(segments_of("a", spans)) == [("waiting", 1), ("prefill", 1), ("decode", 2)]
    assert segments_of("x", spans) == []
