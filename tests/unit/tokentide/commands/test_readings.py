import pytest

from tokentide.commands.readings import Totals, percentile


def test_sums_since_an_earlier_reading_are_differences():
    before = Totals(num_steps=10, busy_ns=100, bubble_ns=10, batch_size_ns=300.0)
    after = Totals(num_steps=15, busy_ns=190, bubble_ns=20, batch_size_ns=660.0)

    totals = after.since(before)

    assert totals.num_steps == 5
    assert totals.mean_batch_size == pytest.approx(4.0)
    assert totals.bubble_share == pytest.approx(0.1)


def test_nothing_done_is_no_division_by_zero():
    assert Totals().mean_batch_size == 0.0
    assert Totals().bubble_share == 0.0


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.5, 0.0), ([3.0], 0.99, 3.0), ([1.0, 2.0, 3.0, 4.0], 0.5, 2.0), ([4.0, 1.0], 0.99, 4.0)],
)
def test_percentiles_are_values_that_occurred(values, share, expected):
    assert percentile(values, share) == expected
