"""The planner's values."""

import pytest
from builders import make_running, make_waiting

from scheduler_service.planning.snapshot import Decision, Limits, PlannedChunk, PlannedClaim


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("token_budget", 0),
        ("max_sequences", 0),
        ("chunk_size", -2),
        ("max_bypasses", -1),
        ("max_prompt_skips", -1),
        ("max_partial_prompts", -1),
        ("watermark", 1.0),
        ("watermark", -0.1),
        ("watermark", float("nan")),
    ],
)
def test_limits_that_make_no_sense_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must .*, got {value}"):
        Limits(**{name: value})


def test_pending_tokens_are_those_not_computed() -> None:
    sequence = make_running(num_prompt_tokens=32, num_output_tokens=4, num_computed_tokens=30)

    assert (sequence.num_tokens, sequence.num_pending_tokens) == (36, 6)


def test_a_waiting_request_brings_its_log() -> None:
    assert make_waiting(num_prompt_tokens=32, num_output_tokens=4).num_tokens == 36


def test_a_decisions_tokens_are_those_of_chunks_and_claims() -> None:
    decision = Decision(chunks=(PlannedChunk("a", 1, 0, True),), claims=(PlannedClaim("b", 30, 2),))

    assert decision.num_tokens == 31
