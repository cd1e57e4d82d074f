"""Limits that follow from a machine's two speeds."""

import pytest

from bench.peers.roofline import Machine, ModelSize, limit_tokens_per_s
from tokentide.bench.workload import WorkRequest

MODEL = ModelSize(num_layer_weights=900, num_output_weights=100)  # 4,000 bytes


def make_requests(number: int, num_prompt_tokens: int, max_tokens: int) -> list[WorkRequest]:
    prompt = tuple(range(num_prompt_tokens))
    return [WorkRequest(prompt=prompt, max_tokens=max_tokens) for _ in range(number)]


def test_one_stream_is_bound_by_reading_the_weights() -> None:
    machine = Machine(read_bytes_per_s=4000.0, gemm_flops_per_s=1e12)

    limit = limit_tokens_per_s(make_requests(1, 1, 10), MODEL, machine)

    assert limit == pytest.approx(1)  # a second a step, a token a step


def test_a_large_batch_is_bound_by_arithmetic() -> None:
    machine = Machine(read_bytes_per_s=1e12, gemm_flops_per_s=2000.0)

    limit = limit_tokens_per_s(make_requests(8, 1, 10), MODEL, machine)

    assert limit == pytest.approx(1)  # 2,000 operations a token, however many at once


def test_a_shared_prefix_is_computed_once() -> None:
    machine = Machine(read_bytes_per_s=1e12, gemm_flops_per_s=1.0)
    requests = make_requests(2, 11, 1)

    apart = 2 / limit_tokens_per_s(requests, MODEL, machine)
    shared = 2 / limit_tokens_per_s(requests, MODEL, machine, shared_prefix=10)

    assert apart - shared == pytest.approx(2 * 900 * 10)


def test_those_that_ended_no_longer_cost() -> None:
    machine = Machine(read_bytes_per_s=1e12, gemm_flops_per_s=2000.0)
    requests = [*make_requests(1, 1, 10), *make_requests(1, 1, 1)]

    assert limit_tokens_per_s(requests, MODEL, machine) == pytest.approx(1)
