"""The pieces add up to the whole, whatever the ids are."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_tokenizers import byte_fallback_tokenizer, byte_level_tokenizer

from scheduler_service.detokenizer import MAX_HELD_TOKENS, IncrementalDetokenizer
from scheduler_service.text import TextCodec

BYTE_LEVEL = byte_level_tokenizer()
BYTE_FALLBACK = byte_fallback_tokenizer()
CODECS = {
    "byte_level": TextCodec(BYTE_LEVEL, None, {}),
    "byte_fallback": TextCodec(BYTE_FALLBACK, None, {}),
}
TOKENIZERS = {"byte_level": BYTE_LEVEL, "byte_fallback": BYTE_FALLBACK}

byte_level_ids = st.lists(st.integers(0, BYTE_LEVEL.get_vocab_size() + 5), max_size=80)
texts = st.text(alphabet=st.sampled_from("hi ab é漢🎉👩\u200d💻\ufffd\n"), max_size=40)


@settings(max_examples=300)
@given(byte_level_ids)
def test_any_byte_level_ids_give_the_tokenizers_own_text(ids):
    codec = CODECS["byte_level"]

    assert codec.decode(ids) == BYTE_LEVEL.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("kind", list(CODECS))
@given(text=texts)
def test_the_ids_of_a_text_give_the_tokenizers_own_text(kind, text):
    ids = TOKENIZERS[kind].encode(text).ids

    pieces = [CODECS[kind].detokenizer().push(ids[:n]) for n in range(len(ids) + 1)]

    whole = TOKENIZERS[kind].decode(ids, skip_special_tokens=True)
    assert CODECS[kind].decode(ids) == whole
    assert all(whole.startswith(piece) for piece in pieces)


@pytest.mark.parametrize("kind", list(CODECS))
@given(st.lists(st.integers(0, 270), max_size=60), st.lists(st.integers(1, 9), max_size=20))
def test_the_text_does_not_depend_on_how_ids_are_pushed(kind, ids, sizes):
    codec = CODECS[kind]
    detokenizer = codec.detokenizer()
    text, start = "", 0
    for size in [*sizes, len(ids)]:
        text += detokenizer.push(ids[start : start + size])
        start += size

    assert text + detokenizer.flush() == codec.decode(ids)


@pytest.mark.parametrize("kind", list(CODECS))
def test_an_emoji_is_held_back_until_it_is_whole(kind):
    tokenizer, codec = TOKENIZERS[kind], CODECS[kind]
    ids = tokenizer.encode("hi🎉🎉").ids
    detokenizer = codec.detokenizer()

    pieces = [detokenizer.push([token_id]) for token_id in ids]

    assert [piece for piece in pieces if piece][-2:] == ["🎉", "🎉"]
    assert not any("\ufffd" in piece for piece in pieces)
    assert detokenizer.flush() == ""


@pytest.mark.parametrize("kind", list(CODECS))
def test_special_tokens_and_unknown_ids_leave_no_trace(kind):
    codec, tokenizer = CODECS[kind], TOKENIZERS[kind]
    special = max(i for i, t in tokenizer.get_added_tokens_decoder().items() if t.special)
    ids = tokenizer.encode("hi hi").ids
    mixed = [token_id for i in ids for token_id in (i, special, 10**6)]

    assert codec.decode(mixed) == codec.decode(ids)


def test_a_long_run_without_a_character_is_let_go_and_costs_no_more_per_token():
    calls: list[int] = []

    def decode(ids):
        calls.append(len(ids))
        return BYTE_LEVEL.decode(ids, skip_special_tokens=True)

    lead_byte = BYTE_LEVEL.token_to_id("ð")
    detokenizer = IncrementalDetokenizer(decode)
    text = detokenizer.push([lead_byte] * 500)

    assert len(text) >= 500 - MAX_HELD_TOKENS - 1
    assert text + detokenizer.flush() == "\ufffd" * 500
    assert max(calls) <= 2 * MAX_HELD_TOKENS + 2


@pytest.mark.parametrize("num_bad", range(3 * MAX_HELD_TOKENS))
def test_a_character_after_a_run_that_is_none_stays_whole(num_bad):
    bad = [BYTE_LEVEL.token_to_id("ð")] * num_bad
    ids = bad + BYTE_LEVEL.encode("é🎉").ids

    assert CODECS["byte_level"].decode(ids) == "\ufffd" * num_bad + "é🎉"


def test_a_decoder_that_rewrites_what_it_said_does_no_harm():
    codec = CODECS["byte_fallback"]
    ids = [3 + byte for byte in [*"🎉".encode(), 0xFF]]  # one bad byte spoils the whole run

    assert codec.decode(ids).startswith("🎉")
