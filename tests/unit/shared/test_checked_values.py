"""Values of files: what passes as it is, and what is told in one line."""

from typing import Any

import pytest

from shared.checked_values import (
    above_zero,
    can_be_written,
    mapping,
    number,
    shown,
    shown_name,
    text,
    truth,
    whole_number,
)

NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize("value", [0, 2.5, NAN, INFINITY, "1", None, True, 10**400, [1], -1])
def test_what_is_no_whole_number_in_the_range_is_refused_by_its_name(value: Any) -> None:
    with pytest.raises(ValueError, match=r"num_blocks must be a whole number in \[1, 8\]"):
        whole_number("num_blocks", value, 1, 8)


@pytest.mark.parametrize("value", [NAN, INFINITY, -INFINITY, "1", None, True, 10**400, -0.1, 8.1])
def test_what_is_no_number_in_the_range_is_refused_by_its_name(value: Any) -> None:
    with pytest.raises(ValueError, match=r"rate must be a number in \[0, 8\]"):
        number("rate", value, 0, 8)
    with pytest.raises(ValueError, match=r"rate must be a number in \(0, 8\]"):
        above_zero("rate", value, 8)


def test_zero_is_not_above_zero() -> None:
    assert number("rate", 0, 0, 8) == 0

    with pytest.raises(ValueError, match="rate"):
        above_zero("rate", 0.0, 8)


def test_values_in_range_come_back_as_they_are() -> None:
    assert whole_number("n", 8, 1, 8) == 8
    assert type(number("n", 3, 0, 8)) is int
    assert above_zero("n", 5e-324, 8) == 5e-324
    assert truth("n", False) is False
    assert text("n", "a") == "a"
    assert mapping("n", {"a": 1}, frozenset("ab")) == {"a": 1}


@pytest.mark.parametrize("value", ["", None, 3, ["a"], "\ud800"])
def test_what_is_no_text_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="name must be a text"):
        text("name", value)


def test_a_key_that_is_not_known_is_named() -> None:
    with pytest.raises(ValueError, match="'speed' is unknown in a profile"):
        mapping("a profile", {"speed": 1}, frozenset({"name"}))
    with pytest.raises(ValueError, match="a profile must be a JSON object"):
        mapping("a profile", [1])


@pytest.mark.parametrize(
    "value", ["a" * 1_000_000, "\ud800" * 1000, "\n\n", {"\ud800": "x"}, list(range(10_000))]
)
def test_a_message_stays_short_on_one_line_and_can_be_written(value: Any) -> None:
    for line in (shown(value), shown_name(str(value))):
        assert len(line) < 120 and "\n" not in line
        assert line.encode() and can_be_written(line)
