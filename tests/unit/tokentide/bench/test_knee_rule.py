"""The knee rule on curves whose knee is known."""

import pytest

from tokentide.bench.knee_rule import Throughput, find_knee


def points(**tokens_per_s: float) -> list[Throughput]:
    return [
        Throughput(batch_size=int(size.removeprefix("b")), tokens_per_s=rate)
        for size, rate in tokens_per_s.items()
    ]


def test_the_knee_is_where_the_next_batch_adds_less_than_the_share_of_the_first_slope() -> None:
    knee = find_knee(points(b1=10, b2=20, b4=36, b8=50, b16=60), share=0.5)

    assert knee.linear_slope == 10
    assert [size for size, _ in knee.marginal_gains] == [1, 2, 4, 8]
    assert [gain for _, gain in knee.marginal_gains] == pytest.approx([10, 8, 3.5, 1.25])
    assert knee.batch_size == 4


def test_a_gain_of_just_the_share_is_no_knee() -> None:
    assert find_knee(points(b1=10, b2=15, b4=25), share=0.5).batch_size is None
    assert find_knee(points(b1=10, b2=15, b4=25), share=0.51).batch_size == 1


def test_a_line_has_no_knee() -> None:
    assert find_knee(points(b1=3, b8=24, b64=192)).batch_size is None


def test_a_smaller_share_puts_the_knee_further_out() -> None:
    curve = points(b1=10, b2=20, b4=36, b8=50, b16=60)

    assert find_knee(curve, share=0.2).batch_size == 8
    assert find_knee(curve, share=0.9).batch_size == 2


def test_order_does_not_matter_and_the_slope_is_of_one_sequence() -> None:
    curve = points(b4=36, b16=60, b2=20, b8=50)

    assert find_knee(curve) == find_knee(list(reversed(curve)))
    assert find_knee(curve).linear_slope == 10


def test_a_throughput_that_falls_has_its_knee_before_the_fall() -> None:
    assert find_knee(points(b1=10, b2=20, b4=18)).batch_size == 2


def test_a_single_point_has_no_knee() -> None:
    assert find_knee(points(b1=10)).batch_size is None
