"""The same requests for every system, others in every repeat."""

import pytest

from bench.peers.workloads import BY_NAME, LONG_PROMPT, WORKLOADS, quarter_of, requests_of

VOCABULARY = 1000


@pytest.mark.parametrize("name", list(BY_NAME))
def test_the_same_repeat_gives_the_same_requests_and_another_one_others(name: str) -> None:
    workload = BY_NAME[name]
    rate = 1.0 if workload.has_arrivals else None

    first, same, other = (
        requests_of(workload, repeat=repeat, vocabulary=VOCABULARY, rate=rate)
        for repeat in (0, 0, 1)
    )

    assert first == same
    assert {r.prompt for r in first}.isdisjoint(r.prompt for r in other)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_no_request_of_fixed_lengths_is_longer_than_its_workload_says(workload) -> None:
    requests = requests_of(workload, repeat=0, vocabulary=VOCABULARY, rate=1.0)

    assert len(requests) == workload.num_sequences
    if not workload.is_long_prompt:  # its decodes are cancelled
        assert max(len(r.prompt) + r.max_tokens for r in requests) <= workload.max_length


def test_the_shared_prefix_is_shared_by_all() -> None:
    requests = requests_of(BY_NAME["prefix"], repeat=0, vocabulary=VOCABULARY)

    assert len({request.prompt[:512] for request in requests}) == 1
    assert len({request.prompt[512:] for request in requests}) == 64


def test_the_long_prompt_comes_last() -> None:
    requests = requests_of(BY_NAME["long"], repeat=0, vocabulary=VOCABULARY)

    assert len(requests) == 9
    assert [len(request.prompt) for request in requests[-2:]] == [16, LONG_PROMPT]


def test_a_quarter_is_a_quarter_of_the_requests_or_of_the_single_ones_output() -> None:
    many = requests_of(BY_NAME["32"], repeat=0, vocabulary=VOCABULARY)
    one = requests_of(BY_NAME["one"], repeat=0, vocabulary=VOCABULARY)

    assert quarter_of(many) == many[:8]
    assert [request.max_tokens for request in quarter_of(one)] == [32]
