"""Length distributions: what they draw, and what is refused."""

import random

import pytest

from shared.lengths import Lengths


def draw(spec: str, count: int = 2000, seed: int = 0) -> list[int]:
    source, lengths = random.Random(seed), Lengths.parse(spec)
    return [lengths.draw(source) for _ in range(count)]


def test_fixed_lengths_are_all_equal() -> None:
    assert set(draw("fixed:17")) == {17}


def test_uniform_lengths_reach_both_ends_and_no_further() -> None:
    drawn = draw("uniform:4-9")

    assert set(drawn) == {4, 5, 6, 7, 8, 9}


def test_exponential_lengths_are_drawn_again_above_the_cap() -> None:
    drawn = draw("exponential:64:256", count=5000)

    assert min(drawn) >= 1 and max(drawn) <= 256
    assert drawn.count(256) < 50, "clamped lengths would pile up at the cap"
    # The mean of an exponential that is cut at four times its mean: 64 - 256 / (e^4 - 1) = 59.2.
    assert sum(drawn) / len(drawn) == pytest.approx(59.2, rel=0.05)


def test_lognormal_lengths_have_the_median_named() -> None:
    drawn = sorted(draw("lognormal:80:0.8:2000", count=5000))

    assert drawn[len(drawn) // 2] == pytest.approx(80, rel=0.1)


def test_the_same_source_gives_the_same_lengths() -> None:
    assert draw("exponential:64:256", seed=3) == draw("exponential:64:256", seed=3)
    assert draw("exponential:64:256", seed=3) != draw("exponential:64:256", seed=4)


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "fixed",
        "fixed:0",
        "fixed:x",
        "uniform:9-4",
        "uniform:0-4",
        "uniform:4",
        "exponential:64",
        "exponential:0:10",
        "lognormal:80:0:100",
        "lognormal:80:1:20",
        "normal:3",
        "fixed:1e3",
        "fixed:-3",
        "fixed:99999999999",
        "uniform:1-2-3",
        "exponential:1e12:1",
        "exponential:inf:4",
        "exponential:nan:4",
        "exponential:64:1e3",
        "lognormal:4:inf:8",
        "lognormal:4:nan:8",
        "lognormal:nan:1:8",
        "lognormal:4:1e3:8",
    ],
)
def test_what_is_no_distribution_is_refused_with_the_forms(spec: str) -> None:
    with pytest.raises(ValueError, match="exponential:MEAN:CAP"):
        Lengths.parse(spec)


def test_a_refusal_says_which_number_is_wrong_in_our_words() -> None:
    with pytest.raises(ValueError, match=r"\('1e3' is no whole number\)"):
        Lengths.parse("fixed:1e3")
    with pytest.raises(ValueError, match=r"the mean must be a number in \(0, 400\], got inf"):
        Lengths.parse("exponential:inf:4")


@pytest.mark.parametrize("spec", ["exponential:100:1", "exponential:1e-320:4", "lognormal:8:16:8"])
def test_distributions_that_are_nearly_all_cut_still_end(spec: str) -> None:
    assert max(draw(spec, count=200)) <= 8
