"""Whether a request fits, ever and now."""

import pytest
from builders import make_snapshot, make_waiting
from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.planning.admission import (
    AdmissionLimit,
    admission_blocks,
    can_ever_run,
    capacity,
    exceeded_limit,
    is_unfit,
    watermark_blocks,
    will_grow,
)
from scheduler_service.planning.snapshot import Limits

WORKER = {"block_size": 16, "num_total_blocks": 10, "max_model_tokens": 200}


def test_what_fills_the_cache_to_the_last_place_fits() -> None:
    assert can_ever_run(100, 61, **WORKER)


def test_the_last_sampled_token_needs_no_place() -> None:
    assert exceeded_limit(100, 61, **WORKER) is None
    assert exceeded_limit(100, 62, **WORKER) is AdmissionLimit.CACHE_BLOCKS


def test_prompt_and_output_must_fit_the_model() -> None:
    assert exceeded_limit(150, 51, **WORKER) is AdmissionLimit.MODEL_TOKENS


def test_a_model_without_a_limit_takes_what_the_cache_takes() -> None:
    assert can_ever_run(100, 61, **WORKER | {"max_model_tokens": 0})


@given(
    st.integers(1, 300),
    st.integers(1, 300),
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from([0, 10, 100, 300]),
)
def test_capacity_is_the_formula_as_one_number(
    num_prompt_tokens: int, max_tokens: int, block_size: int, num_blocks: int, max_model: int
) -> None:
    worker = {
        "block_size": block_size,
        "num_total_blocks": num_blocks,
        "max_model_tokens": max_model,
    }

    fits = num_prompt_tokens + max_tokens <= capacity(**worker)

    assert fits == can_ever_run(num_prompt_tokens, max_tokens, **worker)


def test_run_time_asks_the_formula_of_submit() -> None:
    fits, too_long = make_waiting(max_tokens=129), make_waiting(max_tokens=130)
    snapshot = make_snapshot(num_total_blocks=10)

    assert (is_unfit(fits, snapshot), is_unfit(too_long, snapshot)) == (False, True)
    assert can_ever_run(32, 129, **WORKER)


def test_a_request_longer_than_the_model_is_unfit() -> None:
    assert is_unfit(make_waiting(), make_snapshot(max_model_tokens=95))
    assert not is_unfit(make_waiting(), make_snapshot(max_model_tokens=96))


@pytest.mark.parametrize(("watermark", "num_blocks"), [(0.0, 0), (0.02, 2), (0.005, 1)])
def test_the_watermark_is_rounded_up_to_blocks(watermark: float, num_blocks: int) -> None:
    snapshot = make_snapshot(num_total_blocks=100, limits=Limits(watermark=watermark))

    assert watermark_blocks(snapshot) == num_blocks


def test_an_admission_takes_room_for_prompt_log_and_the_next_token() -> None:
    assert admission_blocks(make_waiting(num_prompt_tokens=31), 16) == 2
    assert admission_blocks(make_waiting(num_prompt_tokens=32), 16) == 3
    assert admission_blocks(make_waiting(num_prompt_tokens=32, num_output_tokens=16), 16) == 4


def test_an_admission_never_takes_more_than_the_request_can_come_to_need() -> None:
    assert admission_blocks(make_waiting(num_prompt_tokens=32, max_tokens=1), 16) == 2


def test_a_sequence_with_all_its_blocks_grows_no_more() -> None:
    request = make_waiting(num_prompt_tokens=16, max_tokens=17)

    assert will_grow(request, 1, 16)
    assert not will_grow(request, 2, 16)


@given(st.integers(1, 100), st.integers(1, 100), st.integers(1, 20), st.integers(1, 20))
def test_what_can_ever_run_can_be_admitted_to_an_empty_worker_at_any_time(
    num_prompt_tokens: int, max_tokens: int, block_size: int, num_total_blocks: int
) -> None:
    """Else it would wait for ever at the head of the queue."""
    can_run = can_ever_run(
        num_prompt_tokens,
        max_tokens,
        block_size=block_size,
        num_total_blocks=num_total_blocks,
        max_model_tokens=0,
    )
    for num_output_tokens in range(max_tokens):
        request = make_waiting(
            num_prompt_tokens=num_prompt_tokens,
            num_output_tokens=num_output_tokens,
            max_tokens=max_tokens,
        )
        assert not can_run or admission_blocks(request, block_size) <= num_total_blocks
