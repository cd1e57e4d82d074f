"""Every field is judged, all at once, and nothing but InvalidRequest comes of a bad one."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.blocks import blocks_to_run
from shared.errors import InvalidRequest
from shared.request_fields import Capacity, RawRequest, RequestLimits
from shared.validation import (
    check_fields,
    check_length,
    check_request_id,
    check_request_ids,
    check_token_ids,
)

LIMITS = RequestLimits()
WORKER = Capacity(block_size=16, num_blocks=10, max_model_tokens=1000)  # takes 161 tokens


def violated_fields(**fields) -> set[str]:
    raw = RawRequest(**{"text": "hello", **fields})
    try:
        check_fields(raw, LIMITS)
    except InvalidRequest as error:
        return {violation.field for violation in error.violations}
    return set()


def test_a_plain_request_gets_the_defaults():
    checked = check_fields(RawRequest(text="hello", tenant="team"), LIMITS)

    assert (checked.temperature, checked.top_k, checked.top_p, checked.min_p) == (1.0, 0, 1.0, 0.0)
    assert (checked.seed, checked.max_tokens, checked.cache_salt) == (None, None, "team")
    assert checked.disconnect_grace_ms == LIMITS.default_disconnect_grace_ms
    assert not checked.finish_on_disconnect


def test_all_violations_are_reported_together():
    fields = {
        "request_id": "a b",
        "temperature": math.nan,
        "top_p": 0.0,
        "stop": ("x", "", "y" * 257),
        "priority": 5000,
    }

    assert violated_fields(**fields) == {
        "request_id",
        "sampling.temperature",
        "sampling.top_p",
        "stopping.stop[1]",
        "stopping.stop[2]",
        "priority",
    }


@pytest.mark.parametrize("temperature", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_called_so(temperature):
    with pytest.raises(InvalidRequest, match="not a finite number"):
        check_fields(RawRequest(text="a", temperature=temperature), LIMITS)


BAD = [
    ("request_id", "{pool}", "request_id"),
    ("request_id", "a\n", "request_id"),
    ("request_id", "x" * 129, "request_id"),
    ("tenant", "a{b", "tenant"),
    ("cache_salt", "x" * 257, "cache_salt"),
    ("cache_salt", "\ud800", "cache_salt"),
    ("model", "\ud800", "model"),
    ("text", "", "text"),
    ("text", "a\udfff", "text"),
    ("text", "x" * 1_000_001, "text"),
    ("temperature", -0.1, "sampling.temperature"),
    ("temperature", 100.1, "sampling.temperature"),
    ("temperature", math.inf, "sampling.temperature"),
    ("top_k", 2**31, "sampling.top_k"),
    ("top_k", -5, "sampling.top_k"),
    ("top_p", 1.0001, "sampling.top_p"),
    ("top_p", -math.inf, "sampling.top_p"),
    ("min_p", 1.1, "sampling.min_p"),
    ("min_p", math.nan, "sampling.min_p"),
    ("seed", 2**64, "sampling.seed"),
    ("seed", -1, "sampling.seed"),
    ("max_tokens", 0, "stopping.max_tokens"),
    ("max_tokens", 2**31, "stopping.max_tokens"),
    ("max_tokens", 10**5000, "stopping.max_tokens"),
    ("min_tokens", -1, "stopping.min_tokens"),
    ("stop", ("x",) * 17, "stopping.stop"),
    ("stop", ("\ud800",), "stopping.stop[0]"),
    ("stop_token_ids", tuple(range(65)), "stopping.stop_token_ids"),
    ("priority", -1001, "priority"),
    ("timeout_ms", 2**63, "timeout_ms"),
    ("on_disconnect", "explode", "on_disconnect"),
    ("disconnect_grace_ms", 2**32 - 1, "disconnect_grace_ms"),
]


@pytest.mark.parametrize(
    ("name", "value", "path"), BAD, ids=[f"{n}{i}" for i, (n, _, _) in enumerate(BAD)]
)
def test_a_bad_value_is_named_by_its_path(name, value, path):
    assert violated_fields(**{name: value}) == {path}


GOOD = [
    ("request_id", "A.z:0_-"),
    ("temperature", 0.0),
    ("temperature", 100),
    ("top_k", 2**31 - 1),
    ("top_p", 1e-300),
    ("min_p", 1.0),
    ("seed", 2**64 - 1),
    ("stop", ("é🎉", "\n", "\x00")),
    ("text", "\x00"),
    ("cache_salt", "{any}\n"),
    ("disconnect_grace_ms", 0),
]


@pytest.mark.parametrize(("name", "value"), GOOD, ids=[f"{n}{i}" for i, (n, _) in enumerate(GOOD)])
def test_values_at_the_edge_are_taken(name, value):
    assert violated_fields(**{name: value}) == set()


@pytest.mark.parametrize(
    ("prompts", "path"),
    [
        ({}, "prompt"),
        ({"text": "a", "prompt_ids": (1,)}, "prompt"),
        ({"chat": ()}, "chat.messages"),
        ({"chat": (("user", ""),) * 4097}, "chat.messages"),
        ({"chat": (("user", "x" * 600_000),) * 2}, "chat.messages"),
        ({"chat": (("user", "a"), ("", "b"))}, "chat.messages[1].role"),
        ({"chat": (("user", "\ud800"),)}, "chat.messages[0].content"),
        ({"prompt_ids": ()}, "tokens.ids"),
    ],
    ids=range(8),
)
def test_a_request_has_exactly_one_prompt_with_something_in_it(prompts, path):
    assert violated_fields(**{"text": None, **prompts}) == {path}


@pytest.mark.parametrize("temperature", [-0.0, 5e-324, 9e-6])
def test_a_temperature_too_small_to_divide_by_is_greedy(temperature):
    checked = check_fields(RawRequest(text="a", temperature=temperature), LIMITS)

    assert str(checked.temperature) == "0.0"


def test_min_tokens_may_not_be_more_than_max_tokens():
    assert violated_fields(min_tokens=3, max_tokens=2) == {"stopping.min_tokens"}
    assert violated_fields(min_tokens=2, max_tokens=2) == set()
    with pytest.raises(InvalidRequest, match="min_tokens"):
        check_length(150, None, [WORKER], LIMITS, min_tokens=12)


def test_a_flood_of_violations_is_cut_short():
    with pytest.raises(InvalidRequest) as caught:
        check_token_ids((5,) * 100_000, (), 5)

    assert len(caught.value.violations) == 20
    assert caught.value.violations[3].field == "tokens.ids[3]"


@pytest.mark.parametrize(("prompt_ids", "stop_ids"), [((-1,), ()), ((4, 5), ()), (None, (9,))])
def test_ids_beyond_the_logits_are_refused(prompt_ids, stop_ids):
    with pytest.raises(InvalidRequest):
        check_token_ids(prompt_ids, stop_ids, 5)
    check_token_ids((0, 4), (4,), 5)


def test_the_default_of_max_tokens_is_what_fits():
    assert check_length(10, None, [WORKER], LIMITS) == 151
    assert check_length(10, None, [WORKER], RequestLimits(default_max_tokens=20)) == 20
    assert check_length(10, None, [WORKER], RequestLimits(default_max_tokens=20), 30) == 30
    assert check_length(10, None, [], LIMITS) == LIMITS.default_max_tokens


@pytest.mark.parametrize(
    ("num_prompt_tokens", "max_tokens"), [(0, 1), (161, None), (161, 1), (61, 101)]
)
def test_what_no_worker_can_ever_run_is_refused(num_prompt_tokens, max_tokens):
    with pytest.raises(InvalidRequest):
        check_length(num_prompt_tokens, max_tokens, [WORKER], LIMITS)


capacities = st.builds(Capacity, st.integers(1, 64), st.integers(1, 40), st.integers(2, 600))


@given(st.integers(1, 700), st.integers(1, 700), st.lists(capacities, min_size=1, max_size=3))
def test_a_request_is_taken_when_and_only_when_some_worker_can_run_it(prompt, output, workers):
    can_run = any(
        prompt + output <= w.max_model_tokens
        and blocks_to_run(prompt, output, w.block_size) <= w.num_blocks
        for w in workers
    )

    try:
        assert check_length(prompt, output, workers, LIMITS) == output
        taken = True
    except InvalidRequest:
        taken = False

    assert taken == can_run


@given(st.integers(1, 700), st.lists(capacities, min_size=1, max_size=3))
def test_a_default_of_max_tokens_always_fits(prompt, workers):
    try:
        max_tokens = check_length(prompt, None, workers, LIMITS)
    except InvalidRequest:
        assert not any(w.fits(prompt, 1) for w in workers)
        return

    assert max_tokens >= 1
    assert any(w.fits(prompt, max_tokens) for w in workers)


any_text = st.text(alphabet=st.characters(codec=None), max_size=140)
any_int = st.integers() | st.sampled_from([2**31, 2**63, 2**64, -(2**63), 10**300])
any_float = st.floats() | st.integers(-5, 200)
any_ids = st.lists(any_int, max_size=70).map(tuple)
raw_requests = st.builds(
    RawRequest,
    request_id=any_text,
    model=any_text,
    text=st.none() | any_text,
    chat=st.none() | st.lists(st.tuples(any_text, any_text), max_size=3).map(tuple),
    prompt_ids=st.none() | any_ids,
    temperature=st.none() | any_float,
    top_k=st.none() | any_int,
    top_p=st.none() | any_float,
    min_p=st.none() | any_float,
    seed=st.none() | any_int,
    max_tokens=st.none() | any_int,
    min_tokens=any_int,
    stop=st.lists(any_text, max_size=18).map(tuple),
    stop_token_ids=any_ids,
    ignore_eos=st.booleans(),
    include_stop=st.booleans(),
    priority=any_int,
    tenant=any_text,
    timeout_ms=any_int,
    on_disconnect=any_text,
    disconnect_grace_ms=st.none() | any_int,
    cache_salt=any_text,
)


@settings(max_examples=200)
@given(raw_requests)
def test_nothing_but_invalid_request_is_raised(raw):
    try:
        checked = check_fields(raw, LIMITS)
    except InvalidRequest as error:
        assert error.violations
        str(error).encode("utf-8")  # fit for a status message
        assert len(str(error)) < 20 * 300
    else:
        assert 0 <= checked.temperature <= LIMITS.max_temperature


@given(
    any_int.filter(lambda n: n >= 0), st.none() | any_int, st.lists(capacities), any_int, any_ids
)
def test_nothing_but_invalid_request_is_raised_for_lengths(prompt, output, workers, least, ids):
    try:
        check_length(prompt, output, workers, LIMITS, least)
        check_token_ids(ids, ids, 49_152)
    except InvalidRequest as error:
        assert error.violations


BAD_IDS = ["", "a b", "{pool}", "a\n", "x" * 129, "\ud800"]


@pytest.mark.parametrize("request_id", BAD_IDS)
def test_the_id_of_a_request_that_should_be_there_is_judged_as_at_its_submit(request_id):
    with pytest.raises(InvalidRequest) as raised:
        check_request_id(request_id)

    assert [v.field for v in raised.value.violations] == ["request_id"]
    check_request_id("A.z:0_9-")


def test_each_of_many_ids_is_judged():
    with pytest.raises(InvalidRequest) as raised:
        check_request_ids(["fine", *BAD_IDS, "fine"], LIMITS)

    fields = [v.field for v in raised.value.violations]
    assert fields == [f"request_ids[{index}]" for index in range(1, 1 + len(BAD_IDS))]


def test_too_many_ids_are_refused_and_none_are_fine():
    limits = RequestLimits(max_cancelled_ids=3)

    check_request_ids([], limits)
    check_request_ids(["a", "b", "c"], limits)
    with pytest.raises(InvalidRequest, match="request_ids: 4 of them, at most 3"):
        check_request_ids(["a", "b", "c", ""], limits)
