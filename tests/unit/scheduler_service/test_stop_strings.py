"""Stop strings against a reference that looks at the whole text at once."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.stop_strings import StopChecker, StopMatch

pieces_of_text = st.lists(st.text(alphabet="ab", max_size=4), max_size=14)
stop_strings = st.lists(st.text(alphabet="ab", min_size=1, max_size=4), min_size=1, max_size=4)


def first_match(pieces: list[str], stops: list[str], min_tokens: int = 0) -> tuple[int, str] | None:
    """(end, stop string): the earliest end; at the same end the longest. Character by character."""
    text = "".join(pieces)
    ends = {}  # character -> token that brings it
    for number, piece in enumerate(pieces, start=1):
        for _ in piece:
            ends[len(ends) + 1] = number
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found and ends[end] > min_tokens:
            return end, max(found, key=len)
    return None


def feed(checker: StopChecker, pieces: list[str]) -> StopChecker:
    for piece in pieces:
        checker.feed(piece)
    return checker


@given(pieces_of_text, stop_strings, st.integers(0, 4), st.booleans())
def test_the_match_is_that_of_the_whole_text(pieces, stops, min_tokens, include_stop):
    checker = StopChecker(stops, include_stop=include_stop, min_tokens=min_tokens)
    feed(checker, pieces)

    expected = first_match(pieces, stops, min_tokens)
    if expected is None:
        assert checker.match is None
        return
    end, stop = expected
    lengths = [len("".join(pieces[: n + 1])) for n in range(len(pieces))]
    num_tokens = next(n for n, length in enumerate(lengths, start=1) if length >= end)
    start = end - len(stop)
    before = [n for n in range(1, num_tokens) if pieces[n - 1] and lengths[n - 1] <= start]
    assert checker.match == StopMatch(
        stop_string=stop,
        num_tokens=num_tokens,
        visible_tokens=num_tokens if include_stop else max(before, default=0),
        visible_chars=end if include_stop else start,
    )


@given(pieces_of_text, stop_strings, st.booleans())
def test_nothing_released_is_taken_back_and_text_leaves_with_its_token(pieces, stops, include_stop):
    checker = StopChecker(stops, include_stop=include_stop)
    released = [(0, 0)]
    for piece in pieces:
        checker.feed(piece)
        released.append((checker.num_releasable_tokens, checker.num_releasable_chars))

    assert released == sorted(released)
    for num_tokens, num_chars in released:
        assert num_chars == len("".join(pieces[:num_tokens]))
    if checker.match is not None:
        assert released[-1][0] <= checker.match.visible_tokens
        assert released[-1][1] <= checker.match.visible_chars


@given(pieces_of_text, stop_strings)
def test_only_text_that_may_begin_a_stop_string_is_held_back(pieces, stops):
    checker = feed(StopChecker(stops), pieces)

    if checker.match is not None:
        return
    text = "".join(pieces)
    undecided = max(n for s in stops for n in range(len(s)) if text.endswith(s[:n]))
    lengths = [len("".join(pieces[: n + 1])) for n in range(len(pieces))]
    free = [(n + 1, length) for n, length in enumerate(lengths) if pieces[n]]
    free = [pair for pair in free if pair[1] <= len(text) - undecided]
    expected = free[-1] if free else (0, 0)
    assert (checker.num_releasable_tokens, checker.num_releasable_chars) == expected


@given(pieces_of_text, stop_strings, st.integers(1, 3))
def test_the_visible_text_does_not_depend_on_how_it_falls_into_tokens(pieces, stops, size):
    text = "".join(pieces)
    regrouped = [text[i : i + size] for i in range(0, len(text), size)]

    one, other = feed(StopChecker(stops), pieces), feed(StopChecker(stops), regrouped)

    assert (one.match is None) == (other.match is None)
    if one.match is not None and other.match is not None:
        assert one.match.stop_string == other.match.stop_string
        assert one.match.visible_chars == other.match.visible_chars


def test_every_short_stop_string_is_found_in_every_short_text():
    texts = ["".join(chars) for n in range(8) for chars in itertools.product("ab", repeat=n)]
    stops = [text for text in texts if 1 <= len(text) <= 4]

    for stop, text in itertools.product(stops, texts):
        match = feed(StopChecker([stop]), [text]).match
        assert (match.visible_chars if match else -1) == text.find(stop), (stop, text)


def test_a_stop_string_over_several_tokens_is_never_shown():
    checker = StopChecker(["STOP"])

    seen = []
    for piece in ["one ", "two S", "T", "O", "x", "S", "TO", "P!", "more"]:
        checker.feed(piece)
        seen.append(checker.num_releasable_tokens)

    assert seen == [1, 1, 1, 1, 5, 5, 5, 5, 5]
    assert checker.match == StopMatch(
        stop_string="STOP", num_tokens=8, visible_tokens=5, visible_chars=12
    )


def test_the_match_that_completes_first_wins_over_one_that_starts_earlier():
    checker = feed(StopChecker(["abcd", "bc"]), ["xabcd"])

    assert checker.match is not None
    assert (checker.match.stop_string, checker.match.visible_chars) == ("bc", 2)


def test_without_stop_strings_every_token_is_released_at_once():
    checker = feed(StopChecker([]), ["a", "", "b"])

    assert (checker.num_releasable_tokens, checker.num_releasable_chars) == (3, 2)
