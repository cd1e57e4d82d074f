"""What is delivered in pieces is what a reader of the whole would see."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_tokenizers import byte_level_tokenizer

from scheduler_service.output_cursor import Delivery, OutputCursor
from scheduler_service.text import TextCodec

TOKENIZER = byte_level_tokenizer()
CODEC = TextCodec(TOKENIZER, None, {})
END = TOKENIZER.token_to_id("<|im_end|>")

texts = st.text(alphabet=st.sampled_from("heloab 🎉"), max_size=30)
stops = st.lists(st.text(alphabet="helo🎉a", min_size=1, max_size=3), max_size=3)
sizes = st.lists(st.integers(1, 6), max_size=12)


def ids_of(text: str) -> list[int]:
    return TOKENIZER.encode(text).ids


def deliver(cursor: OutputCursor, ids: list[int], sizes: list[int]) -> list[Delivery]:
    deliveries, start = [], cursor.num_tokens
    for size in [*sizes, len(ids)]:
        deliveries.append(cursor.push(ids[start : start + size]))
        start += size
    return deliveries


@given(texts, stops, sizes, st.booleans())
def test_streamed_text_is_the_text_up_to_the_first_match(text, stops, sizes, include_stop):
    ids = ids_of(text)
    judge = OutputCursor(CODEC, stops, include_stop=include_stop)
    judge.push(ids)
    match = judge.match
    log = ids if match is None else ids[: match.num_tokens]
    visible = (-1, -1) if match is None else (match.visible_tokens, match.visible_chars)

    cursor = OutputCursor(CODEC, stops, include_stop=include_stop)
    deliveries = deliver(cursor, log, sizes)
    deliveries.append(cursor.finish(visible_tokens=visible[0], visible_chars=visible[1]))

    expected = text if match is None else text[: match.visible_chars]
    assert "".join(d.text for d in deliveries) == expected
    assert sum(d.num_tokens for d in deliveries) == (len(log) if match is None else visible[0])
    if match is not None:
        assert text[: match.visible_chars + len(match.stop_string)].count(match.stop_string) >= 1


@given(texts, stops, sizes, st.integers(0, 30))
def test_another_replica_goes_on_at_any_index_where_the_first_one_ended(text, stops, sizes, index):
    ids = ids_of(text)
    first = OutputCursor(CODEC, stops)
    before = first.push(ids[:index])

    second = OutputCursor(CODEC, stops)
    second.skip(ids[: before.num_tokens])
    after = [*deliver(second, ids, sizes), second.finish()]

    assert before.text + "".join(d.text for d in after) == text
    assert before.num_tokens + sum(d.num_tokens for d in after) == len(ids)


def test_a_stop_token_that_is_not_visible_leaves_no_text():
    ids = ids_of("ab") + ids_of("h")
    cursor = OutputCursor(CODEC)
    first = cursor.push(ids[:1])

    last = cursor.finish(ids[1:], visible_tokens=2)

    assert (first, last) == (Delivery(1, "a"), Delivery(1, "b"))


def test_fewer_tokens_may_be_visible_than_are_held_back():
    cursor = OutputCursor(CODEC, ["bhx"])
    pushed = cursor.push(ids_of("abh"))

    assert pushed == Delivery(1, "a")
    assert cursor.finish(visible_tokens=2) == Delivery(1, "b")


def test_an_unfinished_character_is_delivered_at_the_end():
    ids = ids_of("a🎉")[:-1]
    cursor = OutputCursor(CODEC)

    assert cursor.push(ids) == Delivery(len(ids), "a")
    assert cursor.finish() == Delivery(0, "\ufffd")


def test_the_part_of_a_token_before_the_match_comes_with_the_end():
    ids = ids_of("a") + ids_of("hello")  # one token: hello
    assert len(ids) == 2
    judge = OutputCursor(CODEC, ["llo"])
    judge.push(ids)
    match = judge.match
    assert match is not None and (match.visible_tokens, match.visible_chars) == (1, 3)

    cursor = OutputCursor(CODEC, ["llo"])
    pushed = cursor.push(ids[:1])
    last = cursor.finish(ids[1:], visible_tokens=1, visible_chars=3)

    assert (pushed, last) == (Delivery(1, "a"), Delivery(0, "he"))


def test_end_tokens_without_text_are_delivered_at_the_end():
    cursor = OutputCursor(CODEC, ["zz"])

    assert cursor.push([*ids_of("a"), END]) == Delivery(1, "a")
    assert cursor.finish() == Delivery(1, "")


@pytest.mark.parametrize(("min_tokens", "visible"), [(0, ""), (1, "ab")])
def test_no_stop_string_ends_a_request_before_its_min_tokens(min_tokens, visible):
    cursor = OutputCursor(CODEC, ["a"], min_tokens=min_tokens)

    cursor.push(ids_of("aba"))

    assert cursor.match is not None
    assert "aba"[: cursor.match.visible_chars] == visible
